package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestServe: two pods serve the default model through a Service; all changes are made by Helm's upgrade. A live field that
// is edited in the ConfigMap is in force within the sync of the volumes, without a restart. A structural change
// rolls under 32 streams, and none is lost or altered. A broken profile never becomes ready: the
// rollout stops and the old pods serve. A drained node loses no request.
func TestServe(t *testing.T) {
	s := &server{t: t, namespace: namespace(t, "serve"), name: "smollm2", profile: profile("scheduler: maxNumSeqs: 16"), args: []string{"--replicas", "2"}}
	began := time.Now()
	s.upgrade()
	t.Logf("two pods are ready after %.1f s", time.Since(began).Seconds())
	url := s.url()
	want, err := stream(t.Context(), url, "Count.", 24)
	if err != nil || want == "" {
		t.Fatalf("%q, %v\n%s", want, err, s.explain())
	}

	s.profile = profile("scheduler: maxNumSeqs: 16", `serve: servedModelName: ["smollm2", "edited"]`)
	old := s.pods()
	began = time.Now()
	s.upgrade()
	for _, p := range old {
		eventually(t, 3*time.Minute, func() string {
			text, err := get(t.Context(), "http://"+p.Status.PodIP+":8000/v1/models")
			if err != nil || !strings.Contains(text, `"edited"`) {
				return p.Name + " does not have the edited field: " + text
			}
			return ""
		})
	}
	t.Logf("an edited live field is in force in both pods after %.1f s", time.Since(began).Seconds())
	for i, p := range s.pods() {
		if len(old) != 2 || p.Status.ContainerStatuses[0].RestartCount > 0 || !strings.Contains(old[0].Name+old[1].Name, p.Name) {
			t.Errorf("pod %d, %s, is new or was restarted for a live field", i, p.Name)
		}
	}

	s.profile = profile("scheduler: maxNumSeqs: 12", `serve: servedModelName: ["smollm2", "edited"]`)
	l := startLoad(t.Context(), url, 32, 24, want)
	eventually(t, 3*time.Minute, func() string {
		if l.done.Load() < 32 {
			return "the clients get no replies"
		}
		return ""
	})
	began = time.Now()
	s.upgrade()
	took := time.Since(began)
	eventually(t, 3*time.Minute, func() string { // the old ones have ended
		list, err := cluster.Client.CoreV1().Pods(s.namespace).List(t.Context(), meta.ListOptions{})
		if err != nil || len(list.Items) > 2 {
			return "old pods are still there"
		}
		return ""
	})
	l.end()
	t.Logf("a structural change rolled in %.1f s under 32 streams: %d replies, %d lost, %d altered", took.Seconds(), l.done.Load(), len(l.lost), l.altered)
	if len(l.lost) > 0 || l.altered > 0 {
		t.Errorf("%d lost, %d altered: %.300q", len(l.lost), l.altered, l.lost)
	}
	for _, p := range s.pods() {
		for _, name := range []string{old[0].Name, old[1].Name} {
			if p.Name == name {
				t.Errorf("%s was not replaced", name)
			}
		}
	}

	s.drain(url, want)
	s.broken(url)
}

// drain evicts both pods of the server, one after the other, as `kubectl drain` does.
func (s *server) drain(url, want string) {
	t := s.t
	l := startLoad(t.Context(), url, 16, 24, want)
	evict := func(name string) error {
		return cluster.Client.PolicyV1().Evictions(s.namespace).Evict(t.Context(), &policy.Eviction{ObjectMeta: meta.ObjectMeta{Name: name, Namespace: s.namespace}})
	}
	pods := s.pods()
	if err := evict(pods[0].Name); err != nil {
		t.Fatal(err)
	}
	if err := evict(pods[1].Name); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a second eviction is allowed while the first pod is replaced: %v", err)
	}
	eventually(t, 2*time.Minute, func() string {
		if err := evict(pods[1].Name); err != nil {
			return "the second pod is not evicted: " + err.Error()
		}
		return ""
	})
	s.rollout(3 * time.Minute)
	eventually(t, 3*time.Minute, func() string {
		list, err := cluster.Client.CoreV1().Pods(s.namespace).List(t.Context(), meta.ListOptions{})
		if err != nil || len(list.Items) > 2 {
			return "evicted pods are still there"
		}
		return ""
	})
	l.end()
	t.Logf("both pods evicted under 16 streams: %d replies, %d lost, %d altered", l.done.Load(), len(l.lost), l.altered)
	if len(l.lost) > 0 || l.altered > 0 {
		t.Errorf("%d lost, %d altered: %.300q", len(l.lost), l.altered, l.lost)
	}
}

// broken upgrades to a profile with an error past vapp manifest, which refuses it.
func (s *server) broken(url string) {
	t := s.t
	good := s.pods()
	spoil := func(text string) string {
		text = strings.ReplaceAll(text, "maxNumSeqs: 12", "maxNumSeq: 12")
		text = strings.ReplaceAll(text, "progressDeadlineSeconds: 182", "progressDeadlineSeconds: 20")
		text = strings.ReplaceAll(text, "vapp.dev/plan: \"", "vapp.dev/plan: \"0")
		if !strings.Contains(text, "progressDeadlineSeconds: 20") || !strings.Contains(text, "maxNumSeq:") || !strings.Contains(text, "vapp.dev/plan: \"0") {
			t.Errorf("the manifests are not as this test expects:\n%s", text)
		}
		return text
	}
	began := time.Now()
	if err := s.release(30*time.Second, spoil); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("helm upgrade to a broken profile: %v", err)
	}
	eventually(t, 2*time.Minute, func() string {
		d, err := cluster.Client.AppsV1().Deployments(s.namespace).Get(t.Context(), s.name, meta.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, c := range d.Status.Conditions {
			if c.Type == "Progressing" && c.Reason == "ProgressDeadlineExceeded" {
				return ""
			}
		}
		return "the rollout does not stop"
	})
	t.Logf("the rollout of a broken profile stopped after %.1f s", time.Since(began).Seconds())
	said := false
	for _, p := range s.pods() {
		said = said || strings.Contains(s.log(p.Name), "maxNumSeq") && strings.Contains(s.log(p.Name), "smollm2.cue:")
	}
	if !said {
		t.Errorf("no pod's log names the field:\n%s", s.explain())
	}
	eventually(t, 2*time.Minute, func() string { // a probe may have been late
		serving := 0
		for _, p := range s.pods() {
			for _, g := range good {
				if p.Name == g.Name && p.Status.ContainerStatuses[0].Ready && p.Status.ContainerStatuses[0].RestartCount == g.Status.ContainerStatuses[0].RestartCount {
					serving++
				}
			}
		}
		if serving != 2 {
			return fmt.Sprintf("%d of the two old pods serve\n%s", serving, s.explain())
		}
		return ""
	})
	if _, err := stream(t.Context(), url, "Count.", 4); err != nil {
		t.Error(err)
	}
}
