//go:build cgo && linux

package cpu

/*
#include "pool.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync/atomic"

	"vapp.dev/engine/backend"
	kcpu "vapp.dev/kernels/cpu"
)

// device owns the arenas and the pool.
type device struct {
	layout  layout
	r       backend.Reservation
	arenas  [backend.NumArenas]arena
	weights []weight
	steps   []*backend.Step
	sets    []set
	pool    *C.vapp_pool
	encoder encoder
	refused *backend.PlacementError // the first one
	swap    *swapFile               // nil: no Swap arena
	packing chan struct{}           // semaphore of the goroutines that pack
	shared  *memory                 // the Weights arena and its users; nil: not mapped yet
	joined  bool                    // another device packed the weights
	left    bool                    // Close has ended the use of shared

	cacheUse backend.CacheUse
	cacheKey [32]byte
	// cacheSeen is the cache file as it was when the device was opened; nil: there was none.
	cacheSeen fs.FileInfo
	// cacheMade and cacheStem identify the other cache files of this model. cacheOwn means
	// that no other model uses the directory.
	cacheMade [32]byte
	cacheStem string
	cacheOwn  bool
	ranks     chan *run // launches of a device in a group; nil: there is none
	// interrupted is why the launches of a device in a group end early.
	interrupted atomic.Pointer[error]
	timeOps     bool
	times       []phaseTime // of all phases, if timeOps is set
}

var (
	_ backend.Inspector = (*device)(nil)
	_ backend.Placer    = (*device)(nil)
)

// Open maps the arenas of r and starts the threads. It rejects a variant that this machine
// lacks, even if the facts list it.
func (Opener) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	l, err := newLayout(f, s)
	if err != nil {
		return nil, err
	}
	return l.open(s, r)
}

func (l layout) open(s backend.Settings, r backend.Reservation) (backend.Device, error) {
	have := kcpu.Variants()
	for _, v := range l.variants() {
		if !slices.Contains(have, v) {
			return nil, backend.Unsupported(name, "variant "+v, fmt.Sprintf("the facts list it, but this machine has %v", have))
		}
	}
	d := &device{layout: l, r: r, timeOps: s.TimeOps}
	if err := d.check(); err != nil {
		return nil, err
	}
	if err := d.open(s); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// check returns an error unless the reservation holds everything it lists.
func (d *device) check() error {
	offsets, err := d.r.Place(name, d.layout)
	if err != nil {
		return err
	}
	for _, p := range d.r.Programs {
		if err := backend.CheckGroup(name, p, d.layout.group); err != nil {
			return err
		}
	}
	for i, at := range offsets {
		d.weights = append(d.weights, weight{d.r.Packed[i], at})
	}
	return nil
}

func (d *device) open(s backend.Settings) error {
	var err error
	if d.swap, err = openSwap(s.SwapDir, d.r.Arenas[backend.Swap]); err != nil {
		return fmt.Errorf("backend %s: %w", name, err)
	}
	if err := d.useWeights(s); err != nil {
		return err
	}
	for a, n := range d.r.Arenas {
		if backend.Arena(a) == backend.Swap || d.arenas[a].bytes > 0 {
			continue
		}
		if d.arenas[a], err = mapArena(backend.Arena(a), n, d.layout.unit); err != nil {
			return err
		}
		if err := d.place(backend.Arena(a), d.arenas[a]); err != nil {
			return err
		}
	}
	if err := d.populate(); err != nil {
		return err
	}
	d.count(s)
	d.packing = make(chan struct{}, d.layout.threads)
	size := d.r.Step.SetBytes()
	d.steps, d.sets = make([]*backend.Step, d.r.Step.NumSets()), make([]set, d.r.Step.NumSets())
	for i := range d.steps {
		d.steps[i] = d.r.Step.Carve(d.arenas[backend.StepIO].slice(int64(i)*size, size))
	}
	d.openEncoder()
	if d.pool, err = d.layout.startPool(d.layout.share); err == nil && d.layout.group != nil {
		d.startRanks()
	}
	return err
}

// Step returns a set's buffers.
func (d *device) Step(set int) *backend.Step { return d.steps[set] }

// Usage returns the mapped size of each arena, and the size of the swap file.
func (d *device) Usage() [backend.NumArenas]int64 {
	var u [backend.NumArenas]int64
	for a, m := range d.arenas {
		u[a] = m.bytes
	}
	u[backend.Swap] = d.swap.size()
	return u
}

// Scratch implements backend.Inspector.
func (d *device) Scratch(v backend.Value, p *backend.Program) []byte {
	in := p.Values[v]
	return d.arenas[backend.Scratch].slice(in.Offset, in.Format.Bytes(int64(p.Rows(in.Rows))*int64(in.Cols)))
}

// Close waits for running launches, stops the threads and unmaps the arenas; weights that others use stay.
func (d *device) Close() error {
	if d.ranks != nil {
		d.drain()
		close(d.ranks)
		d.ranks = nil
	}
	if d.pool != nil {
		C.vapp_pool_stop(d.pool)
		d.pool = nil
	}
	errs := []error{d.swap.close()}
	for a := range d.arenas {
		if backend.Arena(a) != backend.Weights || d.shared == nil {
			errs = append(errs, d.arenas[a].unmap())
		}
	}
	if d.shared != nil && !d.left {
		d.left, d.arenas[backend.Weights] = true, arena{}
		errs = append(errs, d.shared.Leave())
	}
	clear(d.steps)
	d.sets = nil
	return errors.Join(errs...)
}
