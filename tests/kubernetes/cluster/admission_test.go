package cluster

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
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
	text := vapp(t, "manifest", repository+"/profiles/qwen2-7b.cue", "--ranks-key", "ranks")
	group.apply(text, "--dry-run=server")
	base, err := cluster.Kubectl(t.Context(), "", "kustomize", repository+"/deploy/kustomize/example")
	if err != nil {
		t.Fatal(err)
	}
	s.apply(base, "--dry-run=server")
}

// TestMemory: a pod limited to the plan's bytes serves a load, and one limited to 5 % less is refused at
// its start with the missing bytes.
func TestMemory(t *testing.T) {
	s := &server{t: t, namespace: namespace(t, "memory"), name: "smollm2", profile: profile("scheduler: maxNumSeqs: 16")}
	s.apply(s.render())
	s.rollout(3 * time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	want, err := stream(t.Context(), s.url(), "Count.", 64)
	if err != nil {
		t.Fatal(err)
	}
	l := startLoad(t.Context(), s.url(), 32, 64, want)
	<-ctx.Done()
	l.end()
	p := s.pods()[0]
	t.Logf("a pod with the plan's %d bytes: %d replies of 32 clients in 20 s, %d lost, %d restarts",
		p.Spec.Containers[0].Resources.Limits.Memory().Value(), l.done.Load(), len(l.lost), p.Status.ContainerStatuses[0].RestartCount)
	if len(l.lost) > 0 || l.altered > 0 || p.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("%d lost, %d altered: %.300q\n%s", len(l.lost), l.altered, l.lost, s.explain())
	}

	limit := p.Spec.Containers[0].Resources.Limits[core.ResourceMemory]
	small := &server{t: t, namespace: s.namespace, name: "small", profile: s.profile}
	text := strings.ReplaceAll(small.render(), limit.String(), itoa(limit.Value()*95/100))
	if !strings.Contains(text, itoa(limit.Value()*95/100)) {
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
	if _, err := os.Stat(repository + "/deploy/kustomize/base"); err != nil {
		t.Error(err)
	}
}
