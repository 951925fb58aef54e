package cluster

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/yannh/kubeconform/pkg/validator"
	core "k8s.io/api/core/v1"

	"vapp.dev/tests/kubernetes/chart"
)

// TestAdmission: the chart, plain manifests and the kustomize base pass the API server's validation
// in a namespace that enforces restricted Pod Security, without a warning.
func TestAdmission(t *testing.T) {
	s := &server{t: t, namespace: namespace(t, "admission"), name: "smollm2", profile: profile()}
	s.apply(s.render(), "--dry-run=server")
	s.apply(s.manifest(), "--dry-run=server")
	s.values = []string{"pod: {swap: 1Gi, sharedMemory: 1Gi}\nautoscaling: {enabled: true}\nmodel: {pull: true, tokenSecret: hub}\n"}
	s.apply(s.render(), "--dry-run=server")
	group := &server{t: t, namespace: s.namespace, name: "qwen2-7b"}
	text := chart.Vapp(t, "manifest", repository+"/profiles/qwen2-7b.cue", "--ranks-key", "ranks")
	group.apply(text, "--dry-run=server")
	base, err := cluster.Kubectl(t.Context(), "", "kustomize", repository+"/deploy/kustomize/example")
	if err != nil {
		t.Fatal(err)
	}
	s.apply(base, "--dry-run=server")
	overlay := t.TempDir() + "/server.yaml" // whose image is that of the overlay
	_, version, _ := strings.Cut(text, "image: vapp:")
	version, _, _ = strings.Cut(version, "\n")
	if err := os.WriteFile(overlay, []byte(strings.ReplaceAll(base, "image: registry.example/vapp:1.0", "image: vapp:"+version)), 0o644); err != nil {
		t.Fatal(err)
	}
	if differs := chart.Vapp(t, "diff", "--k8s", overlay, repository+"/deploy/kustomize/example/profile.cue"); differs != "" {
		t.Errorf("the kustomize overlay is not as its profile's plan:\n%s", differs)
	}

	if _, err := cluster.Kubectl(t.Context(), "", "apply", "--server-side", "-f", repository+"/.cache/kubernetes/definitions"); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Kubectl(t.Context(), "", "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"); err != nil {
		t.Fatal(err)
	}
	options, err := os.ReadFile("../chart/testdata/options.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all, err := chart.Render(repository+"/deploy/chart", chart.Release{Name: "m", Namespace: s.namespace}, options)
	if err != nil {
		t.Fatal(err)
	}
	s.create("RuntimeClass", "nvidia", "handler: nvidia")
	s.create("PriorityClass", "serving", "value: 1000")
	eventually(t, time.Minute, func() string { // the server serves a new kind a moment later
		if _, err := cluster.Kubectl(t.Context(), all, "apply", "-n", s.namespace, "--dry-run=server", "-f", "-"); err != nil {
			return err.Error()
		}
		return ""
	})
	s.apply(all, "--dry-run=server")
	conform(t, s.render(), s.manifest(), text, base, all)
}

// create makes an object of the whole cluster.
func (s *server) create(kind, name, fields string) {
	api := map[string]string{"RuntimeClass": "node.k8s.io/v1", "PriorityClass": "scheduling.k8s.io/v1"}[kind]
	s.apply("apiVersion: " + api + "\nkind: " + kind + "\nmetadata: {name: " + name + "}\n" + fields + "\n")
}

// conform validates manifests with kubeconform by schemas of the API server's own OpenAPI document, and
// sees that it refuses a misspelt field.
func conform(t *testing.T, manifests ...string) {
	t.Helper()
	folder := t.TempDir()
	kinds := []string{"deployment-apps-v1", "leaderworkerset-leaderworkerset-v1", "inferencepool-inference-v1", "httproute-gateway-v1", "servicemonitor-monitoring-v1", "prometheusrule-monitoring-v1", "scaledobject-keda-v1alpha1"}
	eventually(t, time.Minute, func() string {
		doc, err := cluster.Client.RESTClient().Get().AbsPath("/openapi/v2").DoRaw(t.Context())
		if err == nil {
			_, err = writeSchemas(doc, folder)
		}
		if err != nil {
			return err.Error()
		}
		for _, k := range kinds {
			if _, err := os.Stat(folder + "/" + k + ".json"); err != nil {
				return err.Error()
			}
		}
		return ""
	})
	v, err := validator.New([]string{folder + "/{{.ResourceKind}}{{.KindSuffix}}.json"}, validator.Opts{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	check := func(text string) (count int, bad []string) {
		for _, r := range v.Validate("manifests", io.NopCloser(strings.NewReader(text))) {
			switch r.Status {
			case validator.Valid:
				count++
			case validator.Empty:
			default:
				bad = append(bad, fmt.Sprint(r.Err))
			}
		}
		return count, bad
	}
	objects := 0
	for _, m := range manifests {
		n, bad := check(m)
		objects += n
		for _, b := range bad {
			t.Error(b)
		}
	}
	t.Logf("kubeconform: %d objects are valid", objects)
	if _, bad := check(strings.ReplaceAll(manifests[0], "readinessProbe:", "readynessProbe:")); len(bad) != 1 {
		t.Errorf("kubeconform finds %d errors in a manifest with a misspelt field", len(bad))
	}
}

// TestMemory: a pod limited to the plan's bytes serves a load, and one limited to 5 % less is refused at
// its start with the missing bytes.
func TestMemory(t *testing.T) {
	s := &server{t: t, namespace: namespace(t, "memory"), name: "smollm2", profile: profile("scheduler: maxNumSeqs: 16")}
	s.apply(s.render())
	s.rollout(3 * time.Minute)
	want, err := stream(t.Context(), s.url(), "Count.", 64)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	l := startLoad(t.Context(), s.url(), 32, 64, want)
	eventually(t, 10*time.Minute, func() string {
		if l.done.Load() < 64 {
			return fmt.Sprintf("the clients got %d replies\n%s", l.done.Load(), s.explain())
		}
		return ""
	})
	l.end()
	p := s.pods()[0]
	t.Logf("a pod with the plan's %d bytes: %d replies of 32 clients in %.1f s, %d lost, %d restarts",
		p.Spec.Containers[0].Resources.Limits.Memory().Value(), l.done.Load(), time.Since(began).Seconds(), len(l.lost), p.Status.ContainerStatuses[0].RestartCount)
	if len(l.lost) > 0 || l.altered > 0 || p.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("%d lost, %d altered: %.300q\n%s", len(l.lost), l.altered, l.lost, s.explain())
	}

	limit := p.Spec.Containers[0].Resources.Limits[core.ResourceMemory]
	small := &server{t: t, namespace: s.namespace, name: "small", profile: s.profile}
	less := fmt.Sprint(limit.Value() * 95 / 100)
	text := strings.ReplaceAll(small.render(), limit.String(), less)
	if !strings.Contains(text, less) {
		t.Fatalf("the manifests have no limit of %s:\n%s", limit.String(), text)
	}
	small.apply(text)
	eventually(t, time.Minute, func() string {
		for _, p := range small.pods() {
			if log := small.log(p.Name); strings.Contains(log, "missing") && strings.Contains(log, "memory: does not fit") {
				t.Logf("a pod with 5 %% less says: %s", strings.Join(strings.Fields(log[:min(len(log), 400)]), " "))
				return ""
			}
		}
		return "no pod says what is missing:\n" + small.explain()
	})
}

// TestHostMemory: a pod with a GPU, of the emulated driver, serves with the plan's bytes of the machine's memory, and one that
// is limited to 5 % less is refused at its start with the missing bytes.
func TestHostMemory(t *testing.T) {
	files := groupFiles(t)
	s := &server{t: t, namespace: namespaceOf(t, "host-memory", files), name: "exact", profile: emulated("")}
	s.args, s.values = []string{"--image", "vapp-cuda"}, []string{emulatedValues}
	s.apply(s.render())
	s.rollout(5 * time.Minute)
	limit := s.pods()[0].Spec.Containers[0].Resources.Limits[core.ResourceMemory]
	small := &server{t: t, namespace: s.namespace, name: "small", profile: s.profile, args: s.args, values: s.values}
	less := limit.Value() * 95 / 100
	text := strings.ReplaceAll(small.render(), limit.String(), fmt.Sprint(less))
	small.apply(text)
	eventually(t, time.Minute, func() string {
		for _, p := range small.pods() {
			log := small.log(p.Name)
			if _, rest, ok := strings.Cut(log, "memory: does not fit: beside the GPU's memory"); ok && strings.Contains(rest, " bytes missing") {
				t.Logf("a pod of a GPU with 5 %% less says: %s", strings.Join(strings.Fields(log[:min(len(log), 400)]), " "))
				return ""
			}
		}
		return "no pod says what is missing:\n" + small.explain()
	})
}
