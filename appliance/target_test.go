package appliance

import (
	"strings"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/schema"
)

// targeted returns a profile with this target.
func targeted(t *testing.T, target string) *schema.Profile {
	t.Helper()
	p, err := schema.Parse("p.cue", []byte("import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"a\"\n\tmodel: source: \"m\"\n"+target+"\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTargetOf(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "",
		`target: gpu: "h100-80g"`:              "h100",
		`target: gpu: "Tesla T4"`:              "t4",
		`target: {memory: "64GiB", cores: 16}`: "cpu-16c-64g",
		`target: {memory: "64GiB", cores: 16, variant: "amx"}`:     "cpu-16c-64g-amx",
		`target: {memory: "1500MiB", cores: 1, variant: "avx512"}`: "cpu-1c-1500m",
		`target: {memory: 5, cores: 1}`:                            "cpu-1c-0m",
	} {
		d, err := TargetOf(targeted(t, text))
		got := ""
		if d != nil {
			got = d.Name
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		`target: gpu: "h101"`:                               `p.cue:6:9: target.gpu: device "h101" is not in the catalogue; did you mean h100?`,
		`target: gpu: "cpu-8c-32g"`:                         `p.cue:6:9: target.gpu: cpu-8c-32g is a CPU machine; write target: {memory: "32GiB", cores: 8}`,
		`target: gpu: "cpu-8c-32g-amx"`:                     `p.cue:6:9: target.gpu: cpu-8c-32g-amx is a CPU machine; write target: {memory: "32GiB", cores: 8, variant: "amx"}`,
		`target: gpu: "cpu"`:                                `p.cue:6:9: target.gpu: "cpu" is no GPU; a CPU machine is target: {memory: "64GiB", cores: 16}`,
		`target: {}`:                                        `p.cue:6:1: target: names no machine; give gpu, such as "h100-80g", or memory and cores of a CPU machine`,
		`target: gpu: "` + strings.Repeat("cpu", 100) + `"`: `p.cue:6:9: target.gpu: "` + strings.Repeat("cpu", 100)[:64] + `…" is no GPU; a CPU machine is target: {memory: "64GiB", cores: 16}`,
	} {
		if err := CheckTarget(targeted(t, text)); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}

// TestOffTarget: the target is another machine, or the same with another choice of the library of dense
// products.
func TestOffTarget(t *testing.T) {
	linear := []backend.Choice{{Name: "linear"}}
	for _, c := range []struct {
		profile, library string
		choices          []backend.Choice
		want             string
	}{
		{`target: gpu: "h200"`, "", linear, ""},
		{`target: gpu: "h200"`, "13.0.2", linear, "h200 without cuBLASLt, NVIDIA H200 with 139.80 GiB with cuBLASLt 13.0.2"},
		{`target: gpu: "h200+cublaslt=13.0"`, "", linear, "h200 with cuBLASLt 13.0.0, NVIDIA H200 with 139.80 GiB without cuBLASLt"},
		{`target: gpu: "h200+cublaslt=13.0"`, "13.0.2", linear, ""},
		{`target: gpu: "h200"`, "13.0.2", nil, ""},
		{"target: gpu: \"h200\"\ncuda: linear: \"own\"", "13.0.2", linear, ""},
		{`target: gpu: "h100"`, "13.0.2", linear, "h100, NVIDIA H200 with 139.80 GiB"},
	} {
		d, err := devices.Find("h200")
		if err != nil {
			t.Fatal(err)
		}
		f := d.Facts("cuda")
		f.CUBLASLt = c.library
		p := &Prepared{Profile: targeted(t, c.profile), Plan: &plan.Plan{Facts: f, Choices: c.choices}}
		target, machine := p.OffTarget()
		if got := strings.Trim(target+", "+machine, ", "); got != c.want {
			t.Errorf("%s, library %q: %q, want %q", c.profile, c.library, got, c.want)
		}
	}
}

// TestAtTarget checks which machine is planned for: that of the flags, else the target where a command
// asks for it, else this one.
func TestAtTarget(t *testing.T) {
	p := targeted(t, `target: gpu: "h100"`)
	l4, err := devices.Find("l4")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		m    Machine
		want string
	}{
		"a server": {Machine{}, ""}, "a plan": {Machine{UseTarget: true}, "h100"},
		"--gpu": {Machine{UseTarget: true, Device: &l4}, "l4"}, "--memory": {Machine{UseTarget: true, Memory: 1 << 30}, ""},
	} {
		m, err := c.m.atTarget(p)
		got := ""
		if m.Device != nil {
			got = m.Device.Name
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
	if _, err := (Machine{}).atTarget(targeted(t, `target: gpu: "h101"`)); err == nil {
		t.Error("a server with an unknown target starts")
	}
}

func TestSameMachine(t *testing.T) {
	const gib = 1 << 30
	gpu := func(name string) backend.Facts {
		return backend.Facts{Device: name, TotalBytes: 79 * gib, Cores: 8, SMs: 132}
	}
	cpu := func(cores int, bytes int64) backend.Facts {
		return backend.Facts{Device: "AMD EPYC", TotalBytes: bytes, Cores: cores}
	}
	for _, c := range []struct {
		target string
		facts  backend.Facts
		want   bool
	}{
		{`target: gpu: "h100-80g"`, gpu("NVIDIA H100 80GB HBM3"), true},
		{`target: gpu: "h100-80g"`, gpu("NVIDIA H200"), false},
		{`target: gpu: "h100-80g"`, gpu("NVIDIA H100 80GB HBM3 MIG 1g.10gb"), false},
		{`target: gpu: "h100-80g"`, cpu(16, 64*gib), false},
		{`target: {memory: "64GiB", cores: 16}`, cpu(16, 64*gib), true},
		{`target: {memory: "64GiB", cores: 16}`, cpu(16, 62*gib), true},
		{`target: {memory: "64GiB", cores: 16}`, cpu(16, 59*gib), false},
		{`target: {memory: "64GiB", cores: 16}`, cpu(8, 64*gib), false},
		{`target: {memory: "79GiB", cores: 8}`, gpu("NVIDIA H100 80GB HBM3"), false},
	} {
		d, err := TargetOf(targeted(t, c.target))
		if err != nil {
			t.Fatal(err)
		}
		if got := sameMachine(*d, c.facts); got != c.want {
			t.Errorf("%s on %s: %v, want %v", c.target, machineText(c.facts), got, c.want)
		}
	}
}
