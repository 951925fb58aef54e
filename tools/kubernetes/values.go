package kubernetes

import (
	"bytes"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Options are what a cluster decides beside the plan.
type Options struct {
	Image   string // repository of the image
	Version string // its tag
	Claim   string // PersistentVolumeClaim with the model's files, or for the Hub's cache; "": an emptyDir
	Keys    string // Secret with the key of the ranks
	Text    string // of the profile
	// Replicas is the number of servers, at least 1.
	Replicas int
}

// Values are those of the chart that a plan decides, in the form of its values.yaml.
type Values struct {
	Image    image        `yaml:"image"`
	Replicas int          `yaml:"replicas"`
	Profile  profileFiles `yaml:"profile"`
	Model    model        `yaml:"model"`
	Plan     planned      `yaml:"plan"`
	Pod      podValues    `yaml:"pod"`
	Ranks    *ranks       `yaml:"ranks,omitempty"`
	Network  *network     `yaml:"networkPolicy,omitempty"`

	name  string
	share bool // Pod.Share
}

type image struct {
	Repository string `yaml:"repository"`
	Tag        string `yaml:"tag"`
}

type profileFiles struct {
	File  string            `yaml:"file"`
	Files map[string]string `yaml:"files"`
}

type model struct {
	MountPath string `yaml:"mountPath"`
	Claim     string `yaml:"claim,omitempty"`
	ReadOnly  bool   `yaml:"readOnly,omitempty"`
	Pull      bool   `yaml:"pull,omitempty"`
}

type planned struct {
	Hash   string `yaml:"hash"`
	Lock   string `yaml:"lock,omitempty"`
	Memory string `yaml:"memory"`
}

type podValues struct {
	Resources    resources `yaml:"resources"`
	SharedMemory string    `yaml:"sharedMemory,omitempty"`
	Swap         string    `yaml:"swap,omitempty"`
	LoadSeconds  int       `yaml:"loadSeconds"`
	DrainSeconds int       `yaml:"drainSeconds"`
	Port         int       `yaml:"port"`
	Affinity     *affinity `yaml:"affinity,omitempty"`
}

type ranks struct {
	Size      int    `yaml:"size"`
	KeySecret string `yaml:"keySecret"`
}

// network are the ports that a profile needs in the NetworkPolicy beside the API's and the Hub's.
type network struct {
	Listens []int `yaml:"ports,omitempty"`
	Calls   []int `yaml:"egressPorts,omitempty"`
}

// resources are those of a container, as text so that no tool rounds them.
type resources struct {
	Requests map[string]string `yaml:"requests"`
	Limits   map[string]string `yaml:"limits"`
}

// affinity is the part of a pod's affinity that selects nodes by labels.
type affinity struct {
	Node struct {
		Required struct {
			Terms []nodeTerm `yaml:"nodeSelectorTerms"`
		} `yaml:"requiredDuringSchedulingIgnoredDuringExecution"`
	} `yaml:"nodeAffinity"`
}

type nodeTerm struct {
	Match []nodeMatch `yaml:"matchExpressions"`
}

type nodeMatch struct {
	Key      string   `yaml:"key"`
	Operator string   `yaml:"operator"`
	Values   []string `yaml:"values"`
}

// ClaimError reports a model in files, without a volume that has them.
type ClaimError struct{ Source, Folder string }

func (e *ClaimError) Error() string {
	return fmt.Sprintf("model.source: %s is a file or folder, and no volume has it; give --claim NAME, a PersistentVolumeClaim that is mounted at %s", e.Source, e.Folder)
}

// KeyError reports ranks without a Secret for their key.
type KeyError struct{ Ranks int }

func (e *KeyError) Error() string {
	return fmt.Sprintf("parallel: %d ranks authenticate each other; give --ranks-key NAME, a Secret whose key \"key\" has at least 32 characters", e.Ranks)
}

// Values returns the chart's values for a pod. The error is a *ClaimError or a *KeyError.
func (p Pod) Values(o Options, source string) (*Values, error) {
	if !p.Hub && o.Claim == "" {
		return nil, &ClaimError{source, p.Models}
	}
	if p.Ranks > 1 && o.Keys == "" {
		return nil, &KeyError{p.Ranks}
	}
	memory, cores := strconv.FormatInt(p.Memory, 10), strconv.Itoa(p.Cores)
	v := &Values{
		Image:    image{o.Image, o.Version},
		Replicas: max(1, o.Replicas),
		Profile:  profileFiles{p.File, map[string]string{p.File: o.Text}},
		Model:    model{MountPath: p.Models, Claim: o.Claim, ReadOnly: !p.Hub, Pull: p.Hub},
		Plan:     planned{p.Plan, p.Lock, strconv.FormatInt(p.Planned, 10)},
		Pod: podValues{
			Resources:   resources{Requests: map[string]string{"memory": memory, "cpu": cores}, Limits: map[string]string{"memory": memory}},
			LoadSeconds: p.Load, DrainSeconds: p.Drain, Port: p.Port, Affinity: p.affinity(),
		},
		name: p.Name, share: p.Share,
	}
	if p.GPU {
		v.Pod.Resources.Limits["nvidia.com/gpu"] = "1"
	} else { // the number of threads is planned, and a container sees its limit
		v.Pod.Resources.Limits["cpu"] = cores
	}
	if p.SharedMemory > 0 {
		v.Pod.SharedMemory = strconv.FormatInt(p.SharedMemory, 10)
	}
	if p.Swap > 0 {
		v.Pod.Swap = strconv.FormatInt(p.Swap, 10)
	}
	if p.Ranks > 1 {
		v.Ranks = &ranks{p.Ranks, o.Keys}
	}
	if len(p.Listens)+len(p.Calls) > 0 {
		v.Network = &network{p.Listens, p.Calls}
	}
	return v, nil
}

// affinity returns the nodes that the plan is for; nil: any.
func (p Pod) affinity() *affinity {
	var match []nodeMatch
	require := func(label, value string) { match = append(match, nodeMatch{label, "In", []string{value}}) }
	if p.Product != "" {
		require("nvidia.com/gpu.product", p.Product)
	}
	if p.Arch != "" {
		require("kubernetes.io/arch", p.Arch)
	}
	for _, f := range p.Features {
		require("feature.node.kubernetes.io/cpu-cpuid."+f, "true")
	}
	if match == nil {
		return nil
	}
	a := &affinity{}
	a.Node.Required.Terms = []nodeTerm{{match}}
	return a
}

// YAML returns the values as the text of a values file.
func (v *Values) YAML() ([]byte, error) { return marshal(v) }

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}
