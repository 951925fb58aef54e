package controlplane

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// leaderWorkerSet installs the definitions and webhooks of the module lws, and starts its
// controller. The webhooks are called by address: its own Service would need a pod.
func (c *ControlPlane) leaderWorkerSet(ctx context.Context, webhook, health int) error {
	dir := filepath.Join(c.options.Dir, "lws")
	if err := c.ca.issue("lws", "localhost"); err != nil {
		return err
	}
	config := fmt.Sprintf(`apiVersion: config.lws.x-k8s.io/v1alpha1
kind: Configuration
leaderElection: {leaderElect: false}
internalCertManagement: {enable: false}
metrics: {bindAddress: "0"}
health: {healthProbeBindAddress: "127.0.0.1:%d"}
webhook: {host: 127.0.0.1, port: %d, certDir: %q}
`, health, webhook, dir)
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return err
	}
	bases, err := filepath.Glob(filepath.Join(c.options.LWS, "config/crd/bases/*.yaml"))
	if err != nil || len(bases) == 0 {
		return fmt.Errorf("%s has no definitions of resources in config/crd/bases: %v", c.options.LWS, err)
	}
	for _, f := range bases {
		if _, err := c.Kubectl(ctx, "", "apply", "--server-side", "-f", f); err != nil {
			return err
		}
	}
	if err := c.run(ctx, loopback("http", health)+"/readyz", "lws-controller", "--config="+file, "--kubeconfig="+c.Kubeconfig); err != nil {
		return err
	}
	// The server of the webhooks starts later; it has no page, so any answer is one.
	listens := func(int) bool { return true }
	if err := c.processes[len(c.processes)-1].ready(ctx, loopback("https", webhook)+"/", listens); err != nil {
		return err
	}
	text, err := c.webhooks(webhook)
	if err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, text, "apply", "-f", "-")
	return err
}

// webhooks returns the module's configuration of webhooks with their address and authority. As in
// the module's kustomization, only pods of a LeaderWorkerSet are sent.
func (c *ControlPlane) webhooks(port int) (string, error) {
	data, err := os.ReadFile(filepath.Join(c.options.LWS, "config/webhook/manifests.yaml"))
	if err != nil {
		return "", err
	}
	redirect := func(w *admission.WebhookClientConfig) {
		url := "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + *w.Service.Path
		*w = admission.WebhookClientConfig{URL: &url, CABundle: c.ca.pem}
	}
	member := &meta.LabelSelector{MatchExpressions: []meta.LabelSelectorRequirement{{Key: "leaderworkerset.sigs.k8s.io/name", Operator: meta.LabelSelectorOpExists}}}
	pods := func(rules []admission.RuleWithOperations) *meta.LabelSelector {
		if len(rules) == 1 && slices.Contains(rules[0].Resources, "pods") {
			return member
		}
		return nil
	}
	var out []string
	for _, doc := range strings.Split(string(data), "\n---\n") {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			return "", err
		}
		var object any
		switch kind.Kind {
		case "MutatingWebhookConfiguration":
			o := &admission.MutatingWebhookConfiguration{}
			err = yaml.UnmarshalStrict([]byte(doc), o)
			for i := range o.Webhooks {
				redirect(&o.Webhooks[i].ClientConfig)
				o.Webhooks[i].ObjectSelector = pods(o.Webhooks[i].Rules)
			}
			object = o
		case "ValidatingWebhookConfiguration":
			o := &admission.ValidatingWebhookConfiguration{}
			err = yaml.UnmarshalStrict([]byte(doc), o)
			for i := range o.Webhooks {
				redirect(&o.Webhooks[i].ClientConfig)
				o.Webhooks[i].ObjectSelector = pods(o.Webhooks[i].Rules)
			}
			object = o
		default:
			return "", fmt.Errorf("webhooks of lws have an object of kind %q, which is not known here", kind.Kind)
		}
		if err != nil {
			return "", err
		}
		y, err := yaml.Marshal(object)
		if err != nil {
			return "", err
		}
		out = append(out, string(y))
	}
	return strings.Join(out, "---\n"), nil
}

// Kubectl runs kubectl with input on stdin and returns its output, stdout and stderr, so that
// warnings are seen.
func (c *ControlPlane) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.options.Bin, "kubectl"), args...)
	cmd.Env, cmd.Stdin = c.environment(), strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
