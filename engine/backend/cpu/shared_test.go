//go:build cgo && linux

package cpu_test

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
)

// shared returns a reference to the weights of a device.
func (d *device) shared(t *testing.T) backend.PackedWeights {
	t.Helper()
	w, err := d.Device.(backend.Sharer).ShareWeights()
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	return w
}

// TestSharedOnNodes: weights on NUMA nodes serve a device whose threads are on the same nodes, and no other. What the
// system refused is known to both.
func TestSharedOnNodes(t *testing.T) {
	all := allowed(t, 1024)
	on := cpu.OnNodes{Threads: []int{2, 1}, CPUs: [][]int{all, all}, Refused: syscall.EPERM}
	n := wide
	n.opener = on
	a := n.open(t, backend.Settings{})
	rows, tokens := a.steps(t)
	w := a.shared(t)
	on.Refused = nil
	n.opener = on
	b := n.openUnpacked(t, backend.Settings{Weights: w})
	if got, sampled := b.steps(t); !bytes.Equal(got, rows) || sampled != tokens {
		t.Errorf("other bits, or tokens %v and not %v", sampled, tokens)
	}
	if p := b.Device.(backend.Placer).Placement(); !errors.Is(p.Refused, syscall.EPERM) || len(p.Nodes) != 2 {
		t.Errorf("placement %+v", p)
	}
	n.opener = cpu.OnNodes{Threads: []int{1, 2}, CPUs: [][]int{all, all}}
	var other *backend.WeightsError
	if _, _, err := n.opened(t, backend.Settings{Weights: w}); !errors.As(err, &other) || other.Kind != backend.WeightsLayout || !strings.Contains(err.Error(), "2 threads on node 0, 1 threads on node 1") {
		t.Errorf("on other nodes: %v", err)
	}
}

// TestSharedMemory: the process keeps the memory of weights until the last Close, and has it once for two devices.
func TestSharedMemory(t *testing.T) {
	n := wide
	n.vocab = 1 << 16 // 64 MiB for the head, and 96 for the table
	a := n.open(t, backend.Settings{Threads: 1})
	w := a.shared(t)
	size := w.Bytes()
	if size < 128<<20 {
		t.Fatalf("weights of %d bytes", size)
	}
	one := resident(t)
	b := n.openUnpacked(t, backend.Settings{Threads: 2, Weights: w})
	if grown := resident(t) - one; grown > size/2 {
		t.Errorf("a second device takes %d bytes more", grown)
	}
	must(t, a.Close())
	must(t, b.Close())
	if less := one - resident(t); less > size/2 {
		t.Errorf("closed devices gave %d bytes back, of weights that are held", less)
	}
	held := resident(t)
	must(t, w.Close())
	if less := held - resident(t); less < size/2 {
		t.Errorf("the last Close gave %d bytes back, of %d", less, size)
	}
}

// resident returns the anonymous memory of the process.
func resident(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	must(t, err)
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			must(t, err)
			return kib << 10
		}
	}
	t.Fatal("the system does not say how much memory the process has")
	return 0
}
