package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
)

// Options describe a node.
type Options struct {
	Name string
	// Dir is a new folder for the node's pods and logs.
	Dir string
	// Images are the programs that stand for images, by the image's name without its tag. A container
	// has the program as entrypoint, and the host's /usr.
	Images map[string]string
	Labels map[string]string
	// Capacity is that of the Node object; the machine need not have it.
	Capacity core.ResourceList
}

// Node runs the pods that are bound to it.
type Node struct {
	options Options
	client  *kubernetes.Clientset
	network *Network
	configs cache.Store // ConfigMaps by namespace/name

	cancel context.CancelFunc
	wait   sync.WaitGroup
	mu     sync.Mutex
	pods   map[string]*pod // by UID
}

// Start registers a node and runs its pods until Close. Errors of a pod are in its status and events.
func Start(ctx context.Context, client *kubernetes.Clientset, network *Network, o Options) (*Node, error) {
	ctx, cancel := context.WithCancel(ctx)
	n := &Node{options: o, client: client, network: network, cancel: cancel, pods: map[string]*pod{}}
	if err := n.register(ctx); err != nil {
		cancel()
		return nil, err
	}
	all := informers.NewSharedInformerFactory(client, 0)
	n.configs = all.Core().V1().ConfigMaps().Informer().GetStore()
	changed := func(any) { n.configsChanged() }
	_, _ = all.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, o any) { changed(o) },
	})
	all.Start(ctx.Done())
	all.WaitForCacheSync(ctx.Done())
	bound := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(l *meta.ListOptions) {
		l.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", o.Name).String()
	}))
	_, _ = bound.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { n.see(ctx, o.(*core.Pod)) },
		UpdateFunc: func(_, o any) { n.see(ctx, o.(*core.Pod)) },
		DeleteFunc: func(o any) {
			if p, ok := o.(*core.Pod); ok {
				n.gone(string(p.UID))
			}
		},
	})
	bound.Start(ctx.Done())
	bound.WaitForCacheSync(ctx.Done())
	n.wait.Go(func() { n.beat(ctx) })
	return n, nil
}

// Close kills the node's pods, as a machine that loses its power. The objects stay.
func (n *Node) Close() {
	n.cancel()
	n.mu.Lock()
	pods := n.pods
	n.pods = nil
	n.mu.Unlock()
	for _, p := range pods {
		p.kill()
	}
	n.wait.Wait()
}

// Kill kills the processes of a pod. It returns false if the node does not run it.
func (n *Node) Kill(uid string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.pods[uid]
	if p != nil {
		p.group.kill()
	}
	return p != nil
}

// Log returns the path of a container's output.
func (n *Node) Log(namespace, pod, container string) string {
	return filepath.Join(n.options.Dir, "logs", namespace, pod, container+".log")
}

func (n *Node) register(ctx context.Context) error {
	object := &core.Node{ObjectMeta: meta.ObjectMeta{Name: n.options.Name, Labels: map[string]string{
		core.LabelHostname: n.options.Name, core.LabelArchStable: "amd64", core.LabelOSStable: "linux",
	}}}
	for k, v := range n.options.Labels {
		object.Labels[k] = v
	}
	nodes := n.client.CoreV1().Nodes()
	if _, err := nodes.Create(ctx, object, meta.CreateOptions{}); err != nil {
		return fmt.Errorf("node %s: %w", n.options.Name, err)
	}
	if err := os.MkdirAll(n.options.Dir, 0o755); err != nil {
		return err
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error { // controllers write the object too
		made, err := nodes.Get(ctx, n.options.Name, meta.GetOptions{})
		if err != nil {
			return err
		}
		made.Status.Capacity, made.Status.Allocatable = n.options.Capacity, n.options.Capacity
		made.Status.Addresses = []core.NodeAddress{{Type: core.NodeInternalIP, Address: n.network.gateway.String()}}
		made.Status.Conditions = []core.NodeCondition{{
			Type: core.NodeReady, Status: core.ConditionTrue, Reason: "Started",
			LastHeartbeatTime: meta.Now(), LastTransitionTime: meta.Now(),
		}}
		_, err = nodes.UpdateStatus(ctx, made, meta.UpdateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return n.renew(ctx)
}

// leaseSeconds is how long the node controller takes the node for alive.
const leaseSeconds = 40

func (n *Node) renew(ctx context.Context) error {
	now, seconds := meta.NowMicro(), int32(leaseSeconds)
	lease := &coordination.Lease{
		ObjectMeta: meta.ObjectMeta{Name: n.options.Name, Namespace: core.NamespaceNodeLease},
		Spec:       coordination.LeaseSpec{HolderIdentity: &n.options.Name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
	leases := n.client.CoordinationV1().Leases(core.NamespaceNodeLease)
	if _, err := leases.Create(ctx, lease, meta.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		return err
	}
	old, err := leases.Get(ctx, n.options.Name, meta.GetOptions{})
	if err != nil {
		return err
	}
	old.Spec = lease.Spec
	_, err = leases.Update(ctx, old, meta.UpdateOptions{})
	return err
}

func (n *Node) beat(ctx context.Context) {
	tick := time.NewTicker(leaseSeconds / 4 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = n.renew(ctx) // the next one may do; the node controller sees that none did
		}
	}
}

// see starts a new pod, and ends one that is deleted.
func (n *Node) see(ctx context.Context, object *core.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pods == nil {
		return
	}
	id := string(object.UID)
	p := n.pods[id]
	if p == nil {
		if object.Status.Phase == core.PodSucceeded || object.Status.Phase == core.PodFailed {
			return
		}
		p = newPod(n, object)
		n.pods[id] = p
		n.wait.Go(func() { p.run(ctx) })
	}
	if object.DeletionTimestamp != nil {
		p.end(time.Duration(*object.DeletionGracePeriodSeconds) * time.Second)
	}
}

func (n *Node) gone(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.pods[id]; p != nil {
		p.kill()
		delete(n.pods, id)
	}
}

// configsChanged writes the new contents of ConfigMaps into the volumes of pods.
func (n *Node) configsChanged() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		p.refresh()
	}
}

// Resources returns a list of cores and bytes, with room for pods.
func Resources(cores, memory string) core.ResourceList {
	return core.ResourceList{
		core.ResourceCPU: resource.MustParse(cores), core.ResourceMemory: resource.MustParse(memory),
		core.ResourcePods: resource.MustParse("50"), core.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
}
