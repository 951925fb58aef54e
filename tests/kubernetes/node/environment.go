package node

import (
	"context"
	"fmt"
	"strings"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// environment returns the container's variables, in their order, with references resolved.
func (c *container) environment() ([]core.EnvVar, error) {
	var out []core.EnvVar
	if len(c.spec.EnvFrom) > 0 {
		return nil, fmt.Errorf("container %s: envFrom: this node takes env alone", c.spec.Name)
	}
	for _, e := range c.spec.Env {
		if e.ValueFrom != nil {
			value, err := c.valueFrom(e.ValueFrom)
			if err != nil {
				return nil, fmt.Errorf("env %s: %w", e.Name, err)
			}
			out = append(out, core.EnvVar{Name: e.Name, Value: value})
			continue
		}
		out = append(out, core.EnvVar{Name: e.Name, Value: expand(e.Value, out)})
	}
	return out, nil
}

func (c *container) valueFrom(s *core.EnvVarSource) (string, error) {
	p, api := c.pod.object, c.pod.node.client.CoreV1()
	switch {
	case s.FieldRef != nil:
		return c.field(s.FieldRef.FieldPath)
	case s.SecretKeyRef != nil:
		o, err := api.Secrets(p.Namespace).Get(context.Background(), s.SecretKeyRef.Name, meta.GetOptions{})
		if err != nil {
			return "", err
		}
		if v, ok := o.Data[s.SecretKeyRef.Key]; ok {
			return string(v), nil
		}
		return "", fmt.Errorf("secret %s has no key %s", s.SecretKeyRef.Name, s.SecretKeyRef.Key)
	case s.ConfigMapKeyRef != nil:
		o, err := api.ConfigMaps(p.Namespace).Get(context.Background(), s.ConfigMapKeyRef.Name, meta.GetOptions{})
		if err != nil {
			return "", err
		}
		if v, ok := o.Data[s.ConfigMapKeyRef.Key]; ok {
			return v, nil
		}
		return "", fmt.Errorf("config map %s has no key %s", s.ConfigMapKeyRef.Name, s.ConfigMapKeyRef.Key)
	}
	return "", fmt.Errorf("a source that this node does not know")
}

// field returns a field of the downward API.
func (c *container) field(path string) (string, error) {
	p := c.pod.object
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	switch path {
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
	case "spec.nodeName":
		return p.Spec.NodeName, nil
	case "status.podIP":
		return c.pod.status.PodIP, nil
	case "status.hostIP":
		return c.pod.status.HostIP, nil
	}
	for prefix, values := range map[string]map[string]string{"metadata.labels['": p.Labels, "metadata.annotations['": p.Annotations} {
		if name, ok := strings.CutPrefix(path, prefix); ok {
			return values[strings.TrimSuffix(name, "']")], nil
		}
	}
	return "", fmt.Errorf("field %s: this node does not know it", path)
}

// expand replaces $(NAME) of known variables; $$ stands for one $.
func expand(text string, env []core.EnvVar) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		if text[i+1] == '$' {
			b.WriteByte('$')
			i++
			continue
		}
		end := strings.IndexByte(text[i:], ')')
		if text[i+1] != '(' || end < 0 {
			b.WriteByte('$')
			continue
		}
		name, found := text[i+2:i+end], false
		for _, e := range env {
			if e.Name == name {
				b.WriteString(e.Value)
				found = true
				break
			}
		}
		if !found {
			b.WriteString(text[i : i+end+1])
		}
		i += end
	}
	return b.String()
}
