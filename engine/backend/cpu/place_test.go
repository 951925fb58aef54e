//go:build cgo && linux

package cpu_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/backendtest"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/kernels"
)

// allowed returns the CPUs that this process may use, at most n.
func allowed(t testing.TB, n int) []int {
	var set unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &set))
	var out []int
	for c := 0; len(out) < min(n, set.Count()); c++ {
		if set.IsSet(c) {
			out = append(out, c)
		}
	}
	return out
}

// wide is a program whose head is split between nodes: 4 MiB in 128 panels.
var wide = tiny{heads: 8, kv: 2, dim: 32, vocab: 4096, tokens: 24, seqs: 4, length: 64, format: kernels.F32}

// steps runs a prompt and a decode step and returns attention's rows and the sampled tokens.
func (d *device) steps(t testing.TB) ([]byte, [2][4]int32) {
	t.Helper()
	var tokens [2][4]int32
	b := d.fill(0, 4, 6, 0)
	d.run(t, b)
	out := d.rows(24)
	copy(tokens[0][:], d.Step(0).Sampled)
	d.run(t, d.fill(1, 4, 1, 6))
	copy(tokens[1][:], d.Step(1).Sampled)
	return append(out, d.rows(4)...), tokens
}

// TestNodesSameBits: nodes, and a system that refuses to place memory, change no bit.
func TestNodesSameBits(t *testing.T) {
	want, sampled := wide.open(t, backend.Settings{Threads: 1}).steps(t)
	all := allowed(t, 1024)
	for _, o := range []cpu.OnNodes{
		{Threads: []int{1, 1}, CPUs: [][]int{all, all}},
		{Threads: []int{3, 1}, CPUs: [][]int{all, all}, Refused: syscall.EPERM},
		{Threads: []int{2, 5, 1}, CPUs: [][]int{all, all[:1], all}, Refused: syscall.ENOSYS},
	} {
		n := wide
		n.opener = o
		d := n.open(t, backend.Settings{})
		got, tokens := d.steps(t)
		if !bytes.Equal(got, want) || tokens != sampled {
			t.Errorf("threads %v: other bits, or tokens %v and not %v", o.Threads, tokens, sampled)
		}
		p := d.Device.(backend.Placer).Placement()
		var refused *backend.PlacementError
		if len(p.Nodes) != len(o.Threads) || o.Refused != nil && (!errors.As(p.Refused, &refused) || !errors.Is(refused, o.Refused)) {
			t.Errorf("threads %v: placement %+v", o.Threads, p)
		}
		if refused != nil && !strings.Contains(refused.Error(), `cpu.numa to "off"`) {
			t.Errorf("the note has no remedy: %v", refused)
		}
	}
}

// TestNodesSuite runs products and experts on two nodes of two and three threads: every panel of
// every expert is multiplied, by the rule of the suite.
func TestNodesSuite(t *testing.T) {
	all := allowed(t, 1024)
	o := cpu.OnNodes{Threads: []int{2, 3}, CPUs: [][]int{all, all}, Refused: syscall.EPERM}
	for _, part := range []string{"experts", "linear of parts in several formats"} {
		backendtest.Suite{Opener: o}.Part(t, part, 8)
	}
}

// TestCrowded runs steps with 64 threads on two CPUs, or one. No work is lost: every step samples
// what it sampled before. A phase wakes no more threads than there are CPUs, and one CPU is never
// spun on, so that the thread that the others wait for has one.
func TestCrowded(t *testing.T) {
	one, sampled := wide.open(t, backend.Settings{Threads: 1}).steps(t)
	cpus := allowed(t, 2)
	n := wide
	n.opener = cpu.OnNodes{Threads: []int{64}, CPUs: [][]int{cpus}}
	d := n.open(t, backend.Settings{})
	if got, tokens := d.steps(t); !bytes.Equal(got, one) || tokens != sampled {
		t.Errorf("64 threads: other bits, or tokens %v and not %v", tokens, sampled)
	}
	d.run(t, d.fill(0, 4, 1, 6))
	want := [4]int32(d.Step(0).Sampled)
	b := [2]backend.Binding{d.fill(0, 4, 1, 6), d.fill(1, 4, 1, 6)}
	for i := range 500 {
		if i >= 2 {
			must(t, d.Wait(i%2))
		}
		if got := [4]int32(d.Step(i % 2).Sampled); i >= 2 && got != want {
			t.Fatalf("step %d: tokens %v, before %v", i-2, got, want)
		}
		must(t, d.Launch(d.exe, b[i%2]))
	}
	must(t, d.Wait(0))
	must(t, d.Wait(1))
	phases, woken, spinning := cpu.PoolCounts(d.Device)
	t.Logf("%d phases woke %d threads; at most %d spun at a time", phases, woken, spinning)
	if phases < 500 || woken > phases*int64(len(cpus)) || spinning > int64(len(cpus)-1) {
		t.Errorf("%d phases woke %d threads, and %d spun at a time, on %d CPUs", phases, woken, spinning, len(cpus))
	}
}

// pageNodes returns the node of each page of b; below 0: it is not resident.
func pageNodes(t *testing.T, b []byte) []int32 {
	size := os.Getpagesize()
	n := len(b) / size
	at, out := make([]uintptr, n), make([]int32, n)
	for i := range at {
		at[i] = uintptr(unsafe.Pointer(&b[i*size]))
	}
	if _, _, err := unix.Syscall6(unix.SYS_MOVE_PAGES, 0, uintptr(n), uintptr(unsafe.Pointer(&at[0])), 0, uintptr(unsafe.Pointer(&out[0])), 0); err != 0 {
		t.Fatalf("move_pages: %v", err)
	}
	return out
}

// TestPlacement needs a machine with two NUMA nodes: scripts/numa-check.sh boots one. Each
// region of the weights is on its node, by numa_maps and page by page, other arenas are on all
// nodes, and each thread is on a CPU of its node. Where the system refuses mbind, the pages are
// on the same nodes but next to cuts, by the threads that touched them.
func TestPlacement(t *testing.T) {
	facts, err := cpu.Opener{}.Probe()
	must(t, err)
	if len(facts.Nodes) < 2 {
		t.Skip("not run: this machine has one NUMA node; make numa-check boots one with two")
	}
	t.Run("bound", func(t *testing.T) { placement(t, facts.Nodes, nil) })
	t.Run("refused", func(t *testing.T) {
		if b, _ := os.ReadFile("/proc/sys/kernel/numa_balancing"); strings.TrimSpace(string(b)) == "1" {
			t.Skip("not run: the system moves pages that are not bound (kernel.numa_balancing)")
		}
		placement(t, facts.Nodes, syscall.EPERM)
	})
}

// placement opens a device on nodes where mbind returns refused, and checks where its pages are.
func placement(t *testing.T, nodes []backend.Node, refused error) {
	o := cpu.OnNodes{Refused: refused}
	for _, n := range nodes {
		o.Threads, o.CPUs = append(o.Threads, len(n.CPUs)), append(o.CPUs, n.CPUs)
	}
	n := wide
	n.vocab, n.opener = 65536, o // the head has 64 MiB
	d := n.open(t, backend.Settings{})
	p := d.Device.(backend.Placer).Placement()
	t.Logf("placement %+v", p)
	regions, unit := cpu.Regions(d.Device)
	for i, r := range regions {
		line := mapping(t, uintptr(unsafe.Pointer(&r.Memory[0])))
		t.Logf("region of node %d, %d bytes: %s", r.Node, len(r.Memory), line)
		for _, n := range nodes {
			if on := strings.Contains(line, " N"+strconv.Itoa(n.ID)+"="); r.Node >= 0 && refused == nil && on != (n.ID == r.Node) {
				t.Errorf("region of node %d: %s", r.Node, line)
			}
		}
		at, out, count := pageNodes(t, r.Memory), 0, map[int32]int{}
		for k, node := range at {
			cut := refused != nil && (k*4096 < int(unit) && i > 0 || len(r.Memory)-k*4096 <= int(unit) && i+1 < len(regions))
			count[node]++
			if node < 0 || r.Node >= 0 && int(node) != r.Node && !cut {
				out++
			}
		}
		t.Logf("pages by node: %v", count)
		if out > 0 || r.Node < 0 && len(r.Memory) > 8*int(unit) && len(count) < len(nodes) {
			t.Errorf("region %d of node %d: %d pages of %d are elsewhere: %v", i, r.Node, out, len(at), count)
		}
	}
	if len(regions) < len(nodes) {
		t.Errorf("%d regions for %d nodes", len(regions), len(nodes))
	}
	for i, use := range p.Nodes {
		if threads := pinned(t, nodes[i].CPUs); use.Bytes == 0 || threads != use.Threads {
			t.Errorf("node %d: %+v, and %d threads are pinned to its CPUs", i, use, threads)
		}
	}
	d.steps(t)
}

// mapping returns the line of numa_maps of the mapping that has an address.
func mapping(t *testing.T, at uintptr) (line string) {
	b, err := os.ReadFile("/proc/self/numa_maps")
	must(t, err)
	for l := range strings.Lines(string(b)) {
		begin, _, _ := strings.Cut(l, " ")
		if a, err := strconv.ParseUint(begin, 16, 64); err == nil && uintptr(a) <= at {
			line = strings.TrimSpace(l)
		}
	}
	return line
}

// pinned returns how many of this process's threads may run on one CPU only, one of these.
func pinned(t *testing.T, cpus []int) (n int) {
	files, err := filepath.Glob("/proc/self/task/*/status")
	must(t, err)
	for _, f := range files {
		b, _ := os.ReadFile(f)
		for l := range strings.Lines(string(b)) {
			if list, ok := strings.CutPrefix(l, "Cpus_allowed_list:"); ok {
				for _, c := range cpus {
					if strings.TrimSpace(list) == strconv.Itoa(c) {
						n++
					}
				}
			}
		}
	}
	return n
}
