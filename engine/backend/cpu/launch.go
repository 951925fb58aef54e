//go:build cgo && linux

package cpu

/*
#include "pool.h"

static uint32_t launch_at(vapp_pool *p, uintptr_t list, int n, int32_t tokens, int32_t samples, int32_t seqs, int32_t chunk)
{
	return vapp_pool_launch(p, (const vapp_phase *)list, n, tokens, samples, seqs, chunk);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"vapp.dev/engine/backend"
)

// The C pool and package backend have the same limit of chunks.
var _ [C.VAPP_POOL_CHUNKS]struct{} = [backend.MaxChunks]struct{}{}

// errClosed is the error of a closed device.
var errClosed = errors.New("backend cpu: the device is closed")

// startPool starts the layout's threads on its nodes.
func (l layout) startPool(share float64) (*C.vapp_pool, error) {
	nodes := []C.vapp_node{{threads: C.int(l.threads)}}
	var pins runtime.Pinner
	defer pins.Unpin()
	if len(l.nodes) > 0 {
		nodes = nodes[:0]
	}
	for _, n := range l.nodes {
		cpus := make([]C.int, len(n.CPUs))
		for i, c := range n.CPUs {
			cpus[i] = C.int(c)
		}
		pins.Pin(&cpus[0])
		nodes = append(nodes, C.vapp_node{threads: C.int(n.threads), n: C.int(len(cpus)), cpus: &cpus[0]})
	}
	pool, err := C.vapp_pool_start(&nodes[0], C.int(len(nodes)), C.double(share))
	if pool == nil {
		return nil, fmt.Errorf("backend %s: starting %d threads: %w", name, l.threads, err)
	}
	return pool, nil
}

// set is the state of a set of step buffers.
type set struct {
	number  C.uint32_t // of the pool's last launch on it
	running bool
	run     run   // with a group: the last launch
	err     error // with a group: of the last launch
}

// Launch checks the step and passes the program's phases for the set to the pool.
func (d *device) Launch(e backend.Executable, b backend.Binding) error {
	x, ok := e.(*executable)
	if !ok || x.d != d {
		return fmt.Errorf("backend %s: Launch of a program that another device compiled", name)
	}
	if d.pool == nil {
		return errClosed
	}
	if err := d.r.Step.CheckSet(b.Set); err != nil {
		return err
	}
	st := &d.sets[b.Set]
	if st.running {
		return &backend.StepError{Field: "Binding.Set", Why: fmt.Sprintf("set %d is still running: Wait for it first", b.Set)}
	}
	if x.p.Encodes() {
		return &backend.StepError{Field: "Launch", Why: "program " + x.p.Name + " is an encoder's: Encode runs it"}
	}
	if err := d.steps[b.Set].Check(x.p, b, d.arenas[backend.KV].bytes); err != nil {
		return err
	}
	if err := d.steps[b.Set].CheckItems(b, d.r.Encoder); err != nil {
		return err
	}
	l := &x.lists[b.Set]
	if !adapted(d.steps[b.Set], b.Tokens) {
		l = &x.bare[b.Set]
	}
	st.running = true
	if d.ranks != nil {
		st.run = run{x, l, b, st.run.done}
		d.ranks <- &st.run
		return nil
	}
	st.number = d.launch(x, *l, b)
	return nil
}

// launch passes phases to the pool and returns the launch's number.
func (d *device) launch(x *executable, l list, b backend.Binding) C.uint32_t {
	return C.launch_at(d.pool, C.uintptr_t(l.at), C.int(l.n), C.int32_t(b.Tokens), C.int32_t(b.Samples), C.int32_t(b.Seqs), C.int32_t(x.p.Bucket.Chunk))
}

// Wait blocks in the kernel until the set's launch has finished. It returns no error of the
// launch but that of a group: a row whose sampling failed has its own Status.
func (d *device) Wait(set int) error {
	if d.pool == nil {
		return errClosed
	}
	st := &d.sets[set]
	d.finish(st)
	return st.err
}

// finish waits for the set's launch.
func (d *device) finish(st *set) {
	switch {
	case !st.running:
		return
	case d.ranks != nil:
		st.err = <-st.run.done
	default:
		C.vapp_pool_wait(d.pool, st.number)
	}
	st.running = false
}

// drain waits for the launches of all sets and of the encoder. A later Wait still works.
func (d *device) drain() {
	d.finish(&d.encoder.set)
	for i := range d.sets {
		d.finish(&d.sets[i])
	}
}

// Share returns the processor time of a pool thread since Open, and how long the thread slept
// to leave its processor to other threads (Settings.HTTPShare).
func (d *device) Share() (worked, rested time.Duration) {
	if d.pool == nil {
		return 0, 0
	}
	return time.Duration(C.vapp_pool_worked(d.pool)), time.Duration(C.vapp_pool_rested(d.pool))
}

// counts returns how many phases the pool has published, how many sleeping threads it woke for
// them, and the most threads that spun at a time on a node with fewer CPUs than threads.
func (d *device) counts() (phases, woken, spinning int64) {
	c := C.vapp_pool_count(d.pool)
	return int64(c.phases), int64(c.woken), int64(c.spinning)
}

// restFor returns how long a pool thread sleeps when other threads want its processor; the
// thread used it for busy of the last wall.
func restFor(busy, wall time.Duration, share float64) time.Duration {
	return time.Duration(C.vapp_pool_rest(C.int64_t(busy), C.int64_t(wall), C.double(share)))
}
