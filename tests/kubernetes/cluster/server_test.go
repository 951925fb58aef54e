package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vapp.dev/tests/kubernetes/chart"
)

// server is one release of the chart.
type server struct {
	t         *testing.T
	namespace string
	name      string
	profile   string   // its fields
	values    []string // texts of values files, behind those of vapp manifest
	args      []string // of vapp manifest
}

// profile returns a small server of the default model, for one core.
func profile(more ...string) string {
	variant := "avx2"
	if info, _ := os.ReadFile("/proc/cpuinfo"); strings.Contains(string(info), "avx512vl") {
		variant = "avx512"
	}
	if !strings.Contains(strings.Join(more, ""), "servedModelName") {
		more = append(more, `serve: servedModelName: ["smollm2"]`)
	}
	return fmt.Sprintf(`name: "smollm2"
model: source: "../models/%s"
target: {memory: "2GiB", cores: 1, variant: %q}
maxModelLen: "2K"
memory: kvCache: "128MiB"
%s
`, model, variant, strings.Join(more, "\n"))
}

// manifest writes the profile into a folder beside the model's and runs vapp manifest.
func (s *server) manifest(more ...string) string {
	s.t.Helper()
	dir := s.t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "profiles"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Symlink(cluster.models, filepath.Join(dir, "models")); err != nil {
		s.t.Fatal(err)
	}
	file := filepath.Join(dir, "profiles", "smollm2.cue")
	if err := os.WriteFile(file, []byte(s.profile), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return chart.Vapp(s.t, slices.Concat([]string{"manifest", file, "--claim", "models"}, s.args, more)...)
}

// texts returns the values of vapp manifest and those of the test.
func (s *server) texts() (all [][]byte) {
	s.t.Helper()
	for _, v := range append([]string{s.manifest("--values")}, s.values...) {
		all = append(all, []byte(v))
	}
	return all
}

// render returns the chart's manifests.
func (s *server) render() string {
	s.t.Helper()
	text, err := chart.Render(repository+"/deploy/chart", chart.Release{Name: s.name, Namespace: s.namespace}, s.texts()...)
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

// release installs or upgrades the chart with Helm and waits until it is ready. post may change the manifests.
func (s *server) release(within time.Duration, post func(string) string) error {
	s.t.Helper()
	return chart.Upgrade(s.t.Context(), repository+"/deploy/chart", cluster.Kubeconfig, chart.Release{Name: s.name, Namespace: s.namespace}, within, post, s.texts()...)
}

// upgrade is release that must become ready.
func (s *server) upgrade() {
	s.t.Helper()
	if err := s.release(4*time.Minute, nil); err != nil {
		s.t.Fatalf("helm upgrade: %v\n%s", err, s.explain())
	}
}

// apply applies manifests. A warning of the API server fails the test.
func (s *server) apply(text string, more ...string) {
	s.t.Helper()
	out, err := cluster.Kubectl(s.t.Context(), text, append([]string{"apply", "-n", s.namespace, "-f", "-"}, more...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	if strings.Contains(strings.ToLower(out), "warning") {
		s.t.Errorf("the API server warns:\n%s", out)
	}
}

// rollout waits until the Deployment has rolled out. On failure it prints what the pods say.
func (s *server) rollout(within time.Duration) {
	s.t.Helper()
	out, err := cluster.Kubectl(s.t.Context(), "", "rollout", "status", "-n", s.namespace, "deployment/"+s.name, "--timeout="+within.String())
	if err != nil {
		s.t.Fatalf("%v\n%s\n%s", err, out, s.explain())
	}
}

// pods returns the pods that are not ending.
func (s *server) pods() []core.Pod {
	s.t.Helper()
	list, err := cluster.Client.CoreV1().Pods(s.namespace).List(s.t.Context(), meta.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + s.name})
	if err != nil {
		s.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(p core.Pod) bool { return p.DeletionTimestamp != nil })
}

// log returns a pod's output.
func (s *server) log(pod string) string {
	var all strings.Builder
	for _, n := range cluster.nodes {
		text, _ := os.ReadFile(n.Log(s.namespace, pod, "vapp"))
		all.Write(text)
	}
	return all.String()
}

// explain returns the states and the ends of the logs of all pods.
func (s *server) explain() string {
	var b strings.Builder
	for _, p := range s.pods() {
		fmt.Fprintf(&b, "%s on %s: %s %s\n", p.Name, p.Spec.NodeName, p.Status.Phase, p.Status.Message)
		for _, c := range p.Status.ContainerStatuses {
			fmt.Fprintf(&b, "  %s: ready %v, restarts %d, %+v\n", c.Name, c.Ready, c.RestartCount, c.State)
		}
		lines := strings.Split(s.log(p.Name), "\n")
		b.WriteString(strings.Join(lines[max(0, len(lines)-8):], "\n") + "\n")
	}
	events, err := cluster.Client.CoreV1().Events(s.namespace).List(context.Background(), meta.ListOptions{})
	if err == nil {
		for _, e := range events.Items {
			if e.Type == core.EventTypeWarning {
				fmt.Fprintf(&b, "event: %s %s: %s\n", e.InvolvedObject.Name, e.Reason, e.Message)
			}
		}
	}
	return b.String()
}

// url is the address of the Service.
func (s *server) url() string {
	s.t.Helper()
	o, err := cluster.Client.CoreV1().Services(s.namespace).Get(s.t.Context(), s.name, meta.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("http://%s:%d", o.Spec.ClusterIP, o.Spec.Ports[0].Port)
}

// eventually waits until check returns "", and fails with what it returned last.
func eventually(t *testing.T, within time.Duration, check func() string) {
	t.Helper()
	end := time.Now().Add(within)
	for {
		last := check()
		if last == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatal(last)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
