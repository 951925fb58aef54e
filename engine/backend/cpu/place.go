//go:build cgo && linux

package cpu

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"vapp.dev/engine/backend"
)

// mbind sets the policy of memory that is not resident yet. A variable, so that tests refuse it.
var mbind = func(b []byte, mode int, nodes uint64) error {
	// The system reads one bit less than it is given as the mask's length.
	_, _, err := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(mode),
		uintptr(unsafe.Pointer(&nodes)), maxNodes+1, 0)
	if err != 0 {
		return err
	}
	return nil
}

// place puts an arena in the memory of nodes, before its pages are resident: regions of weights
// in the memory of their node, everything else but step buffers in turn. If the system refuses
// the policies, threads on the nodes make the pages resident. Memory that a node lacks is taken
// from another, so that placing never fails a start that would succeed without it.
func (d *device) place(a backend.Arena, m arena) error {
	if len(d.layout.nodes) == 0 || m.bytes == 0 || a == backend.StepIO {
		return nil
	}
	regions := []region{{0, m.bytes, everywhere}}
	if a == backend.Weights {
		regions = d.layout.regions(d.r.Weights, d.weights, m.bytes)
	}
	err := d.layout.bind(m, regions)
	if err == nil {
		return nil
	}
	if d.refused == nil {
		d.refused = err
	}
	if err := d.layout.touch(m, regions); err != nil {
		return fmt.Errorf("backend %s: memory of the %v arena: %w", name, a, err)
	}
	return nil
}

// bind sets the policies of an arena's regions.
func (l layout) bind(m arena, regions []region) *backend.PlacementError {
	var all uint64
	for _, n := range l.nodes {
		all |= 1 << n.ID
	}
	for _, r := range regions {
		mode, mask := unix.MPOL_INTERLEAVE, all
		if r.node != everywhere {
			mode, mask = unix.MPOL_PREFERRED, 1<<l.nodes[r.node].ID
		}
		if r.bytes == 0 {
			continue
		}
		if err := mbind(m.slice(r.at, r.bytes), mode, mask); err != nil {
			_ = mbind(m.slice(0, m.bytes), unix.MPOL_DEFAULT, 0) // one mapping again: touch needs new ones
			return &backend.PlacementError{Call: "mbind", Err: err}
		}
	}
	return nil
}

// touch makes the pages of regions resident on threads that run on the region's node, so that
// the system takes them from there. Regions that are everywhere alternate by huge page.
func (l layout) touch(m arena, regions []region) error {
	pieces := make([][][]byte, len(l.nodes))
	turn := 0
	for _, r := range regions {
		step := int64(populateChunk)
		if r.node == everywhere {
			step = l.unit
		}
		for at := r.at; at < r.at+r.bytes; at += step {
			k := r.node
			if k == everywhere {
				k, turn = turn%len(l.nodes), turn+1
			}
			pieces[k] = append(pieces[k], m.slice(at, min(step, r.at+r.bytes-at)))
		}
	}
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for k, n := range l.nodes {
		var next atomic.Int64
		for range n.threads {
			wg.Go(func() {
				defer onCPUs(n.CPUs)()
				for i := int(next.Add(1)); i <= len(pieces[k]) && failed.Load() == nil; i = int(next.Add(1)) {
					if err := makeResident(pieces[k][i-1]); err != nil {
						failed.CompareAndSwap(nil, &err)
					}
				}
			})
		}
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// onCPUs keeps the calling goroutine on some CPUs until the function that it returns is called.
// If the system refuses, the goroutine runs anywhere.
func onCPUs(cpus []int) (undo func()) {
	var before, set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	runtime.LockOSThread()
	if unix.SchedGetaffinity(0, &before) != nil || unix.SchedSetaffinity(0, &set) != nil {
		return runtime.UnlockOSThread
	}
	return func() {
		if unix.SchedSetaffinity(0, &before) == nil {
			runtime.UnlockOSThread() // else the thread ends with the goroutine
		}
	}
}

// Placement implements backend.Placer.
func (d *device) Placement() backend.Placement {
	var p backend.Placement
	if d.refused != nil {
		p.Refused = d.refused
	}
	if len(d.layout.nodes) == 0 {
		return p
	}
	var at []addresses
	for a, m := range d.arenas {
		if m.bytes > 0 && backend.Arena(a) != backend.Swap {
			at = append(at, addresses{uint64(m.address(0)), uint64(m.address(m.bytes))})
		}
	}
	bytes := map[int]int64{}
	if f, err := os.Open("/proc/self/numa_maps"); err == nil {
		bytes = nodeBytes(f, at)
		f.Close()
	}
	for _, n := range d.layout.nodes {
		p.Nodes = append(p.Nodes, backend.NodeUse{ID: n.ID, Threads: n.threads, Bytes: bytes[n.ID]})
	}
	return p
}
