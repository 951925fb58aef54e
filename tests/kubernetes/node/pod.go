package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pod is one pod of the node. Its goroutine starts the init containers one after the other, then all
// containers, and writes the status.
type pod struct {
	node      *Node
	object    *core.Pod // as it was bound
	dir       string
	namespace string // of the network
	group     group
	volumes   map[string]string // folders by the volume's name

	ending chan struct{} // closed when the pod is deleted
	grace  time.Duration // valid after that
	stop   context.CancelFunc

	mu     sync.Mutex
	status core.PodStatus
	ended  bool
	live   []*container
}

func newPod(n *Node, object *core.Pod) *pod {
	return &pod{
		node: n, object: object, dir: filepath.Join(n.options.Dir, "pods", string(object.UID)), ending: make(chan struct{}),
		status: *object.Status.DeepCopy(), volumes: map[string]string{}, stop: func() {},
	}
}

// end begins the deletion of the pod.
func (p *pod) end(grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.ended, p.grace = true, grace
		close(p.ending)
	}
}

// kill ends the processes at once.
func (p *pod) kill() {
	p.end(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.live {
		c.signalKill()
	}
}

// run runs the pod until it is deleted.
func (p *pod) run(ctx context.Context) {
	ctx, p.stop = context.WithCancel(ctx)
	defer p.stop()
	err := p.prepare()
	if err == nil {
		err = p.inits(ctx)
	}
	if err != nil {
		p.fail(err)
		<-p.ending
	} else {
		p.containers(ctx)
	}
	p.clean()
	if ctx.Err() != nil && p.node.stopped() {
		return
	}
	zero := int64(0)
	opts := meta.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &meta.Preconditions{UID: &p.object.UID}}
	err = p.node.client.CoreV1().Pods(p.object.Namespace).Delete(context.Background(), p.object.Name, opts)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		fmt.Fprintf(os.Stderr, "node %s: pod %s: %v\n", p.node.options.Name, p.object.Name, err)
	}
}

func (n *Node) stopped() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods == nil
}

// prepare makes the network, the control group and the volumes.
func (p *pod) prepare() (err error) {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	name, addr, err := p.node.network.add()
	if err != nil {
		return err
	}
	p.namespace = name
	if p.group, err = newGroup(name, p.object.Spec.Containers); err != nil {
		return err
	}
	if err := p.mountVolumes(); err != nil {
		return err
	}
	now := meta.Now()
	p.update(func(s *core.PodStatus) {
		s.Phase, s.StartTime, s.PodIP, s.HostIP = core.PodPending, &now, addr.String(), p.node.network.gateway.String()
		s.PodIPs, s.HostIPs = []core.PodIP{{IP: addr.String()}}, []core.HostIP{{IP: s.HostIP}}
	})
	return nil
}

// inits runs the init containers. One that fails is run again.
func (p *pod) inits(ctx context.Context) error {
	for i := range p.object.Spec.InitContainers {
		spec := &p.object.Spec.InitContainers[i]
		if spec.RestartPolicy != nil {
			return fmt.Errorf("init container %s: this node runs no sidecars", spec.Name)
		}
		c := newContainer(p, spec, &p.status.InitContainerStatuses)
		for wait := firstBackOff; ; wait = min(2*wait, longestBackOff) {
			code, err := c.once(ctx)
			if err != nil {
				return err
			}
			if p.isEnding() || code == 0 {
				break
			}
			if !p.pause(wait) {
				break
			}
		}
		if p.isEnding() {
			return errors.New("deleted")
		}
	}
	p.condition(core.PodInitialized, true, "")
	return nil
}

// containers runs the containers until the pod is deleted.
func (p *pod) containers(ctx context.Context) {
	var wait sync.WaitGroup
	for i := range p.object.Spec.Containers {
		c := newContainer(p, &p.object.Spec.Containers[i], &p.status.ContainerStatuses)
		wait.Go(func() { c.run(ctx) })
	}
	wait.Wait()
	<-p.ending
}

func (p *pod) isEnding() bool {
	select {
	case <-p.ending:
		return true
	default:
		return false
	}
}

// pause waits; it returns false if the pod is deleted meanwhile.
func (p *pod) pause(d time.Duration) bool {
	select {
	case <-p.ending:
		return false
	case <-time.After(d):
		return true
	}
}

// clean removes what prepare made.
func (p *pod) clean() {
	p.unmountAll()
	p.group.remove()
	if p.namespace != "" {
		_ = p.node.network.remove(p.namespace)
	}
}

// fail writes an error of the pod itself, which no restart mends.
func (p *pod) fail(err error) {
	p.update(func(s *core.PodStatus) { s.Phase, s.Reason, s.Message = core.PodFailed, "NodeRefused", err.Error() })
}

// condition sets a condition.
func (p *pod) condition(kind core.PodConditionType, holds bool, reason string) {
	p.update(func(s *core.PodStatus) { setCondition(s, kind, holds, reason) })
}

func setCondition(s *core.PodStatus, kind core.PodConditionType, holds bool, reason string) {
	status := core.ConditionFalse
	if holds {
		status = core.ConditionTrue
	}
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == kind {
			if c.Status != status {
				c.Status, c.LastTransitionTime = status, meta.Now()
			}
			c.Reason = reason
			return
		}
	}
	s.Conditions = append(s.Conditions, core.PodCondition{Type: kind, Status: status, Reason: reason, LastTransitionTime: meta.Now()})
}

// update changes the status and writes it to the API server.
func (p *pod) update(change func(*core.PodStatus)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.status)
	ready := len(p.status.ContainerStatuses) == len(p.object.Spec.Containers)
	for _, c := range p.status.ContainerStatuses {
		ready = ready && c.Ready
	}
	setCondition(&p.status, core.ContainersReady, ready, "")
	setCondition(&p.status, core.PodReady, ready, "")
	object := &core.Pod{ObjectMeta: meta.ObjectMeta{Name: p.object.Name, Namespace: p.object.Namespace, UID: p.object.UID}}
	for range 5 {
		now, err := p.node.client.CoreV1().Pods(p.object.Namespace).Get(context.Background(), object.Name, meta.GetOptions{})
		if err != nil || now.UID != types.UID(p.object.UID) {
			return // deleted
		}
		p.status.DeepCopyInto(&now.Status)
		if _, err = p.node.client.CoreV1().Pods(p.object.Namespace).UpdateStatus(context.Background(), now, meta.UpdateOptions{}); err == nil {
			return
		} else if apierrors.IsNotFound(err) {
			return // deleted since
		} else if !apierrors.IsConflict(err) {
			fmt.Fprintf(os.Stderr, "node %s: status of pod %s: %v\n", p.node.options.Name, p.object.Name, err)
			return
		}
	}
}
