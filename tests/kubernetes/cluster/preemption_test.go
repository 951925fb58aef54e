package cluster

import (
	"fmt"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPreemption: two pods of low priority serve 16 streams. A pod of high priority that fits on a node only without
// one of them makes the scheduler end it: it drains, its requests and those of the other pod are answered, and
// a new pod takes its place.
func TestPreemption(t *testing.T) {
	s := &server{t: t, namespace: namespace(t, "preemption"), name: "smollm2", profile: profile("scheduler: maxNumSeqs: 16"), args: []string{"--replicas", "2"}}
	s.create("PriorityClass", "batch", "value: -10")
	s.create("PriorityClass", "urgent", "value: 1000")
	s.values = []string{"pod: {priorityClassName: batch}\n"}
	s.upgrade()
	url := s.url()
	want, err := stream(t.Context(), url, "Count.", 24)
	if err != nil {
		t.Fatalf("%v\n%s", err, s.explain())
	}
	old := s.pods()
	at := old[0].Spec.NodeName
	request := s.allButOne(at)
	l := startLoad(t.Context(), url, 16, 24, want)
	replies := func(n int64) {
		t.Helper()
		from := l.done.Load()
		eventually(t, 2*time.Minute, func() string {
			if l.done.Load() < from+n {
				return "the clients get no replies\n" + s.explain()
			}
			return ""
		})
	}
	replies(16)
	s.apply(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: urgent}
spec:
  priorityClassName: urgent
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 0
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: work
    image: vapp
    command: [/bin/sleep, "3600"]
    resources: {requests: {cpu: %dm}}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`, at, request))
	began := time.Now()
	eventually(t, 2*time.Minute, func() string {
		p, err := cluster.Client.CoreV1().Pods(s.namespace).Get(t.Context(), "urgent", meta.GetOptions{})
		if err != nil || p.Status.Phase != core.PodRunning {
			return fmt.Sprintf("the urgent pod does not run: %v, %+v\n%s", err, p.Status, s.explain())
		}
		return ""
	})
	took := time.Since(began)
	s.rollout(3 * time.Minute)
	replies(16) // with the new pod
	l.end()
	var preempted []string
	events, err := cluster.Client.CoreV1().Events(s.namespace).List(t.Context(), meta.ListOptions{FieldSelector: "reason=Preempted"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		preempted = append(preempted, e.InvolvedObject.Name)
	}
	if len(preempted) != 1 || preempted[0] != old[0].Name && preempted[0] != old[1].Name {
		t.Errorf("the scheduler has preempted %v, want one of the two old pods", preempted)
	}
	t.Logf("a pod was preempted and had left after %.1f s, under 16 streams: %d replies, %d lost, %d altered", took.Seconds(), l.done.Load(), len(l.lost), l.altered)
	if len(l.lost) > 0 || l.altered > 0 {
		t.Errorf("%d lost, %d altered: %.300q", len(l.lost), l.altered, l.lost)
	}
}

// allButOne returns the thousandths of a core that a node has for others if one of the server's pods leaves it, less a half. It
// waits until the pods of other tests have left.
func (s *server) allButOne(name string) (milli int64) {
	t := s.t
	eventually(t, 2*time.Minute, func() string {
		n, err := cluster.Client.CoreV1().Nodes().Get(t.Context(), name, meta.GetOptions{})
		if err != nil {
			return err.Error()
		}
		pods, err := cluster.Client.CoreV1().Pods("").List(t.Context(), meta.ListOptions{FieldSelector: "spec.nodeName=" + name})
		if err != nil {
			return err.Error()
		}
		milli = n.Status.Allocatable.Cpu().MilliValue() + 500
		for _, p := range pods.Items {
			if p.Namespace != s.namespace {
				return p.Namespace + "/" + p.Name + " is still on the node"
			}
			milli -= p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
		}
		return ""
	})
	return milli
}
