package chart

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write testdata/options.golden")

const (
	root   = "../../.."
	folder = root + "/deploy/chart"
)

func render(t *testing.T, values string) (string, error) {
	t.Helper()
	return Render(folder, Release{"m", "models"}, []byte(values))
}

// TestChartIsManifest renders the chart with `vapp manifest --values` and compares every object with
// those of `vapp manifest`.
func TestChartIsManifest(t *testing.T) {
	ports := filepath.Join(t.TempDir(), "ports.cue")
	if err := os.WriteFile(ports, []byte(`name: "ports"
model: source: "HuggingFaceTB/SmolLM2-135M-Instruct"
memory: kvCache: "1GiB"
serve: {kvEvents: {endpoint: "tcp://*:5557", replayEndpoint: "tcp://*:5558"}, traces: endpoint: "https://collector"}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"smollm2.cue", "--memory", "4GiB", "--claim", "models"},
		{"smollm2.cue", "--gpu", "cpu-16c-64g", "--claim", "models", "--replicas", "3"},
		{ports, "--memory", "4GiB"},
		{"gemma4-fp8.cue"},
		{"gpt-oss-20b.cue"},
		{"qwen2-7b.cue", "--ranks-key", "ranks"},
		{"../examples/ranks/profile.cue", "--memory", "4GiB", "--claim", "models", "--ranks-key", "ranks"},
		{"qwen35-27b-fp8.cue", "--claim", "cache", "--ranks-key", "ranks"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			if !filepath.IsAbs(args[0]) {
				args[0] = filepath.Join(root, "profiles", args[0])
			}
			args := append([]string{"manifest"}, args...)
			plain, err := Objects(Vapp(t, args...))
			if err != nil {
				t.Fatal(err)
			}
			var name string
			for _, o := range plain {
				if o["kind"] == "Service" {
					name = o["metadata"].(map[string]any)["name"].(string)
				}
			}
			text, err := Render(folder, Release{name, "models"}, []byte(Vapp(t, append(args, "--values")...)))
			if err != nil {
				t.Fatal(err)
			}
			rendered, err := Objects(text)
			if err != nil {
				t.Fatal(err)
			}
			if len(rendered) != len(plain) || len(plain) != 6 {
				t.Errorf("the chart has %d objects, vapp manifest %d", len(rendered), len(plain))
			}
			for key, want := range plain {
				got := rendered[key]
				for _, o := range []map[string]any{got, want} {
					if o != nil {
						delete(o["metadata"].(map[string]any)["labels"].(map[string]any), "app.kubernetes.io/managed-by")
					}
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s differs; the chart:\n%s\nvapp manifest:\n%s", key, indented(got), indented(want))
				}
			}
		})
	}
}

// TestProfiles writes the manifests of every profile in profiles and compares their memory limit with the plan: its bytes of the
// machine's memory in whole pages, with those of /dev/shm between ranks; or the machine, where the profile asks for a share of it.
func TestProfiles(t *testing.T) {
	const page, shared, machine = 64 << 10, 2 << 30, 64 << 30
	files, err := filepath.Glob(filepath.Join(root, "profiles/*.cue"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var unknown []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var on []string
		if !strings.Contains(string(text), "target:") {
			on = []string{"--gpu", "cpu-16c-64g"}
		}
		printed, refusal := run(t, append([]string{"plan", file, "--json"}, on...)...)
		if strings.Contains(refusal, "the catalogue does not know the name") { // not here, so there is nothing to plan
			if _, says := run(t, append([]string{"manifest", file}, on...)...); !strings.Contains(says, "the catalogue does not know the name") {
				t.Errorf("%s: vapp manifest does not refuse it as vapp plan does: %s", file, says)
			}
			unknown = append(unknown, filepath.Base(file))
			continue
		}
		var plan struct {
			Backend string
			Devices int
			Total   int64 `json:"total_bytes"`
			Host    int64 `json:"host_bytes"`
		}
		if err := json.Unmarshal([]byte(printed), &plan); err != nil {
			t.Errorf("%s: %v: %s", file, err, refusal)
			continue
		}
		want := plan.Total
		switch {
		case plan.Backend == "cuda":
			want = plan.Host
		case strings.Contains(string(text), "utilization:"):
			want = machine
		}
		if plan.Devices > 1 {
			want += shared
		}
		want = (want + page - 1) / page * page
		objects, err := Objects(Vapp(t, append([]string{"manifest", file, "--claim", "models", "--ranks-key", "ranks"}, on...)...))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		limits := 0
		for _, o := range objects {
			for _, l := range find(o, "limits") {
				limits++
				if got := l.(map[string]any)["memory"]; got != strconv.FormatInt(want, 10) {
					t.Errorf("%s: a container is limited to %v bytes, the plan has %d", file, got, want)
				}
			}
		}
		if limits == 0 {
			t.Errorf("%s: no container has a limit", file)
		}
	}
	t.Logf("%d profiles have the plan's limit; not here and not in the catalogue: %v", len(files)-len(unknown), unknown)
	if len(unknown) > 2 {
		t.Errorf("%d profiles were not compared", len(unknown))
	}
}

// find returns the values of a key in an object and everything below it.
func find(v any, key string) (out []any) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if k == key {
				out = append(out, x)
			}
			out = append(out, find(x, key)...)
		}
	case []any:
		for _, x := range v {
			out = append(out, find(x, key)...)
		}
	}
	return out
}

func indented(v any) string { b, _ := json.MarshalIndent(v, "", " "); return string(b) }

// minimal are the values that have no default.
const minimal = "profile: {file: m.cue, files: {m.cue: 'name: \"m\"'}}\n"

func TestLint(t *testing.T) {
	var given map[string]any
	if err := yaml.Unmarshal([]byte(minimal), &given); err != nil {
		t.Fatal(err)
	}
	for _, m := range lint.All(folder, given, "models", true).Messages {
		if m.Severity >= support.WarningSev {
			t.Error(m)
		}
	}
}

// TestOptions renders everything that the chart has as an option and compares it with a golden.
func TestOptions(t *testing.T) {
	values, err := os.ReadFile("testdata/options.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := render(t, string(values))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("testdata/options.golden", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/options.golden")
	if err != nil || string(want) != got {
		t.Errorf("%v: the chart renders testdata/options.yaml otherwise; look at the difference after go test -update\n%s", err, got)
	}
	rules, err := os.ReadFile(root + "/packaging/prometheus/vapp.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	if own, err := os.ReadFile(folder + "/files/vapp.rules.yml"); err != nil || string(own) != string(rules) {
		t.Errorf("deploy/chart/files/vapp.rules.yml is not packaging/prometheus/vapp.rules.yml (%v)", err)
	}
	objects, err := Objects(got)
	if err != nil {
		t.Fatal(err)
	}
	var parsed, alerts map[string]any
	if err := yaml.Unmarshal(rules, &parsed); err != nil {
		t.Fatal(err)
	}
	if alerts, _ = objects["PrometheusRule m"]["spec"].(map[string]any); !reflect.DeepEqual(alerts, parsed) {
		t.Error("the PrometheusRule has other rules than packaging/prometheus")
	}
}

// TestSchema: a wrong value is refused by its name.
func TestSchema(t *testing.T) {
	for values, want := range map[string]string{
		"replica: 2":    "replica",
		"replicas: -1":  "replicas",
		"replicas: two": "replicas",
		"pod: {resources: {limits: {memory: 2GiB}}}": "memory",
		"pod: {resources: {limit: {memory: 2Gi}}}":   "limit",
		"pod: {port: 0}":                 "port",
		"pod: {loadSeconds: 0}":          "loadSeconds",
		"pod: {sharedMemory: much}":      "sharedMemory",
		"plan: {hash: xyz}":              "hash",
		"plan: {memory: 2Gi}":            "memory",
		"image: {pullPolicy: Sometimes}": "pullPolicy",
		"model: {mountPath: models}":     "mountPath",
		"model: {pull: [a]}":             "pull",
		"service: {type: ExternalName}":  "type",
		"ranks: {size: 0}":               "size",
		"networkPolicy: {ports: [http]}": "ports",
		"keda: {waiting: 0}":             "waiting",
		"profile: {file: m.yaml}":        "file",
		"profile: {file: other.cue}":     `there is no "other.cue", which profile.file names`,
		"ranks: {size: 2}":               "ranks.keySecret",
		"inferencePool: {enabled: true}": "inferencePool.endpointPicker.name",
		"httpRoute: {enabled: true}":     "httpRoute.parentRefs",
		"keda: {enabled: true}":          "keda.serverAddress",
		"keda: {enabled: true, serverAddress: a}\nautoscaling: {enabled: true}": "one of them scales the pods",
	} {
		if !strings.HasPrefix(values, "profile:") {
			values = minimal + values
		} else {
			values = "profile: {file: m.cue, files: {m.cue: ''}, " + strings.TrimPrefix(strings.TrimPrefix(values, "profile: {"), "x")
			values = strings.Replace(values, "file: m.cue, files: {m.cue: ''}, file:", "files: {m.cue: ''}, file:", 1)
		}
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", values, err, want)
		}
	}
	if _, err := render(t, minimal); err != nil {
		t.Error(err)
	}
}

// TestScaledGroup: where something else scales the groups, an upgrade does not set their number.
func TestScaledGroup(t *testing.T) {
	const group = minimal + "ranks: {size: 2, keySecret: k}\n"
	for values, want := range map[string]any{group: float64(1), group + "autoscaling: {enabled: true}\n": nil} {
		text, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := Objects(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := objects["LeaderWorkerSet m-ranks"]["spec"].(map[string]any)["replicas"]; got != want {
			t.Errorf("%s: replicas %v, want %v", values, got, want)
		}
	}
}
