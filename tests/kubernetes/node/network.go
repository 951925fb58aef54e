package node

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// Network is a bridge with the pods of all nodes of this process, the proxy of Services and the
// DNS server of the cluster.
type Network struct {
	// ServiceCIDR is the range of Services that no other process of this package uses.
	ServiceCIDR string

	bridge  string
	gateway netip.Addr // the host's address on the bridge, and the DNS server's
	proxy   *proxy
	dns     *dns

	mu   sync.Mutex
	last netip.Addr
	pods int
}

// NewNetwork makes the bridge. Its names and ranges depend on the process id, so that two
// processes do not meet; what an earlier process has left is removed.
func NewNetwork() (*Network, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("network namespaces need root; this is user %d", os.Geteuid())
	}
	if err := removeLeft(); err != nil {
		return nil, err
	}
	pid := os.Getpid()
	n := &Network{
		bridge:      fmt.Sprintf("vp%d", pid),
		ServiceCIDR: fmt.Sprintf("10.%d.0.0/16", 128+pid%64),
		gateway:     netip.AddrFrom4([4]byte{10, byte(192 + pid%62), byte(pid / 62), 1}),
	}
	n.last = n.gateway
	for _, args := range [][]string{
		{"link", "add", n.bridge, "type", "bridge"},
		{"addr", "add", n.gateway.String() + "/24", "dev", n.bridge},
		{"link", "set", n.bridge, "up"},
	} {
		if err := ip(args...); err != nil {
			return nil, fmt.Errorf("no network for pods can be made here: %w", err)
		}
	}
	return n, nil
}

// Serve starts the proxy of Services and the DNS server.
func (n *Network) Serve(ctx context.Context, client *kubernetes.Clientset) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	n.proxy = newProxy(n, factory)
	var err error
	if n.dns, err = newDNS(n, factory); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return ctx.Err()
}

// Close removes the bridge and its namespaces.
func (n *Network) Close() error {
	if n.proxy != nil {
		n.proxy.close()
		n.dns.close()
	}
	return removeOf(os.Getpid())
}

// add makes a network namespace with an address and returns both.
func (n *Network) add() (name string, addr netip.Addr, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last, n.pods = n.last.Next(), n.pods+1
	if n.last.As4()[3] == 255 {
		return "", netip.Addr{}, fmt.Errorf("%s has no more addresses", n.bridge)
	}
	name = fmt.Sprintf("%s-%d", n.bridge, n.pods)
	outside := fmt.Sprintf("%s.%d", n.bridge, n.pods)
	for _, args := range [][]string{
		{"netns", "add", name},
		{"link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name},
		{"link", "set", outside, "master", n.bridge, "up"},
		{"-n", name, "addr", "add", n.last.String() + "/24", "dev", "eth0"},
		{"-n", name, "link", "set", "eth0", "up"},
		{"-n", name, "link", "set", "lo", "up"},
		{"-n", name, "route", "add", "default", "via", n.gateway.String()},
	} {
		if err := ip(args...); err != nil {
			return "", netip.Addr{}, err
		}
	}
	return name, n.last, nil
}

func (n *Network) remove(name string) error { return ip("netns", "del", name) }

// within calls f on a thread that is in a network namespace: a process that f starts is in it.
func within(namespace string, f func() error) error {
	fd, err := unix.Open("/var/run/netns/"+namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("namespace %s: %w", namespace, err)
	}
	defer unix.Close(fd)
	return onThread(fd, f)
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// removeLeft removes bridges and namespaces of processes that are gone.
func removeLeft() error {
	entries, err := os.ReadDir("/sys/class/net")
	if err != nil {
		return err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(strings.TrimPrefix(e.Name(), "vp"))
		if err != nil || !strings.HasPrefix(e.Name(), "vp") {
			continue
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil && pid != os.Getpid() {
			continue
		}
		if err := removeOf(pid); err != nil {
			return err
		}
	}
	return nil
}

// removeOf removes the bridge, namespaces and cgroups of a process.
func removeOf(pid int) error {
	spaces, err := os.ReadDir("/var/run/netns")
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, s := range spaces {
		if strings.HasPrefix(s.Name(), fmt.Sprintf("vp%d-", pid)) {
			if err := ip("netns", "del", s.Name()); err != nil {
				return err
			}
		}
	}
	removeGroups(pid)
	return ip("link", "del", fmt.Sprintf("vp%d", pid))
}
