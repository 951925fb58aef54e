package kubernetes

import (
	"math/big"
	"strings"
	"testing"
)

// pod is that of a server on CPUs; its model is in files.
func pod() Pod {
	return Pod{
		Name: "m", Ranks: 1, Planned: 2 << 30, Memory: 2 << 30, Cores: 4, Arch: "amd64", Features: []string{"AVX2"},
		Load: 61, Drain: 30, Port: 8000, Models: "/etc/models", File: "m.cue", Plan: strings.Repeat("ab", 32),
	}
}

func values(t testing.TB, p Pod) *Values {
	t.Helper()
	v, err := p.Values(Options{Image: "vapp", Version: "1.0", Claim: "models", Keys: "keys", Text: "name: \"m\"\n"}, "../models/m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func manifests(t testing.TB, v *Values) string {
	t.Helper()
	text, err := v.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestCompare changes manifests and values and reads the differences.
func TestCompare(t *testing.T) {
	group := pod()
	group.Ranks, group.SharedMemory = 2, 1<<30
	gpu := pod()
	gpu.GPU, gpu.Product, gpu.Hub, gpu.Models, gpu.Swap = true, "NVIDIA-L4", true, cacheFolder, 4096
	for name, p := range map[string]Pod{"cpu": pod(), "ranks": group, "gpu": gpu} {
		t.Run(name, func(t *testing.T) {
			v := values(t, p)
			text := manifests(t, v)
			if out, err := v.Compare([]File{{"a.yaml", []byte(text)}}); err != nil || len(out) > 0 {
				t.Errorf("the manifests themselves: %v, %v", out, err)
			}
			chart, err := v.YAML()
			if err != nil {
				t.Fatal(err)
			}
			if out, err := v.Compare([]File{{"values.yaml", chart}}); err != nil || len(out) > 0 {
				t.Errorf("the values themselves: %v, %v", out, err)
			}
		})
	}
	v := values(t, pod())
	for _, c := range []struct{ old, new, want string }{
		{` memory: "2147483648"`, " memory: 2047Mi", "a.yaml:176: spec.template.spec.containers[vapp].resources.limits.memory: 2047Mi, the plan has 2147483648: 1048576 bytes are missing, so the pod is refused at its start"},
		{` memory: "2147483648"`, " memory: 2Gi", ""},
		{` memory: "2147483648"`, " memory: 3Gi", ""},
		{` memory: "2147483648"`, " memory: much", "limits.memory: much, the plan has 2147483648"},
		{`cpu: "4"`, "cpu: 4000m", ""},
		{`cpu: "4"`, "cpu: 8", "resources.limits.cpu: 8, the plan has 4"},
		{"image: vapp:1.0", "image: registry:5000/a/vapp:1.0", ""},
		{"image: vapp:1.0", "image: vapp:0.9", "containers[vapp].image: vapp:0.9, the plan has vapp:1.0"},
		{"terminationGracePeriodSeconds: 50", "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 30, the plan has 50"},
		{"replicas: 1", "replicas: 3", ""},
		{"claimName: models", "claimName: others", ""},
		{"readOnlyRootFilesystem: true", "privileged: true", "containers[vapp].securityContext.readOnlyRootFilesystem: absent, the plan has true"},
		{"name: \"m\"", "name: \"n\"", "data.m.cue: a text of 10 bytes, the plan has a text of 10 bytes"},
		{"vapp.dev/plan: " + strings.Repeat("ab", 32), "vapp.dev/plan: " + strings.Repeat("ac", 32), "annotations.vapp.dev/plan: acac"},
		{"- /etc/vapp/m.cue", "- /etc/vapp/m.cue\n            - --set=a=b", "containers[vapp].args[2]: --set=a=b, the plan has nothing"},
		{"volumes:", "others: []\n      volumes:", ""},
	} {
		text := strings.ReplaceAll(manifests(t, v), c.old, c.new)
		if text == manifests(t, v) {
			t.Errorf("%s: not in the manifests", c.old)
		}
		out, err := v.Compare([]File{{"a.yaml", []byte(text)}})
		var lines []string
		for _, d := range out {
			lines = append(lines, d.String())
		}
		got := strings.Join(lines, "\n")
		if err != nil || c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s for %s: %v\n%s\nwant %s", c.new, c.old, err, got, c.want)
		}
	}
}

// TestCompareRefuses reads files that are no manifests of the server.
func TestCompareRefuses(t *testing.T) {
	v := values(t, pod())
	for text, want := range map[string]string{
		"a: [":                              "a.yaml: yaml: line 1: did not find expected node content",
		"a: &x 1\nb: *x":                    "a.yaml:2: an alias; write the fields out",
		"":                                  "no Deployment, LeaderWorkerSet or values file of \"m\"",
		"- 1\n---\n2":                       "no Deployment",
		"kind: Deployment":                  "no Deployment",
		strings.Repeat("---\na: 1\n", 1001): "more than 1000 documents",
		strings.Repeat("[", 70) + strings.Repeat("]", 70): "more than 64 levels",
	} {
		if _, err := v.Compare([]File{{"a.yaml", []byte(text)}}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
}

// TestValuesRefuse: a model in files needs a claim, ranks need a Secret.
func TestValuesRefuse(t *testing.T) {
	p := pod()
	if _, err := p.Values(Options{}, "m.gguf"); err == nil || !strings.Contains(err.Error(), "give --claim NAME, a PersistentVolumeClaim that is mounted at /etc/models") {
		t.Error(err)
	}
	p.Ranks = 2
	if _, err := p.Values(Options{Claim: "c"}, "m.gguf"); err == nil || !strings.Contains(err.Error(), "2 ranks authenticate each other; give --ranks-key NAME") {
		t.Error(err)
	}
}

func TestQuantity(t *testing.T) {
	for text, want := range map[string]string{
		"2Gi": "2147483648", "1.5Gi": "1610612736", "2162232576": "2162232576", "500m": "1/2", "1e9": "1000000000", "1E3": "1000", "4k": "4000", "10u": "1/100000",
		"": "", "Gi": "", "1 Gi": "", "-": "", "1/2": "", "0x10": "", "1e9999": "", "1e3Gi": "", "2GiB": "", "+1": "1", "-1": "-1",
	} {
		n, err := quantity(text)
		if want == "" {
			if err == nil {
				t.Errorf("%q is %v", text, n)
			}
			continue
		}
		if w, _ := new(big.Rat).SetString(want); err != nil || n.Cmp(w) != 0 {
			t.Errorf("%q is %v, %v; want %s", text, n, err, want)
		}
	}
}

// FuzzCompare reads any text as a manifest.
func FuzzCompare(f *testing.F) {
	v := values(f, pod())
	f.Add([]byte(manifests(f, v)))
	f.Add([]byte("a: &x [*x]"))
	f.Add([]byte("kind: Deployment\nmetadata: {name: m}\nspec: {template: {spec: {containers: [{name: vapp, resources: {limits: {memory: 1e-999}}}]}}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		out, err := v.Compare([]File{{"a", text}})
		if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("an error of several lines: %q", err)
		}
		for _, d := range out {
			if strings.Contains(d.String(), "\n") {
				t.Errorf("a difference of several lines: %q", d)
			}
		}
	})
}
