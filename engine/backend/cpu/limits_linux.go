//go:build cgo

package cpu

/*
#include "pool.h"

static void run_at(vapp_pool *p, uintptr_t list)
{
	vapp_pool_wait(p, vapp_pool_launch(p, (const vapp_phase *)list, 1, 1, 0, 0, 0));
}
*/
import "C"

import (
	"time"
	"unsafe"

	"golang.org/x/sys/cpu"

	"vapp.dev/engine/backend"
	kcpu "vapp.dev/kernels/cpu"
)

// limitBytes is how much memory a measurement reads: more than the caches of any current
// socket.
const limitBytes = 1 << 29

// MeasureLimits runs each measurement for a third of d on its own pool and returns the best
// rates. threads 0 means one for each core. It uses half a gigabyte of memory meanwhile.
func MeasureLimits(threads int, d time.Duration) (Limits, error) {
	m, err := OpenMeter(threads)
	if err != nil {
		return Limits{}, err
	}
	defer m.Close()
	l := m.l
	out := Limits{Variant: l.variant, Threads: l.threads}
	out.Read = m.Read(d / 3)
	out.F32 = m.rate(kcpu.OpFMA, d/3)
	out.BF16 = out.F32
	out.Int8 = m.rate(kcpu.OpDotInt8, d/3)
	switch {
	case l.variant == amx:
		out.BF16 = m.rate(kcpu.OpTilesBF16, d/3)
	case l.variant == avx512bf16, l.variant == avx512 && cpu.X86.HasAVX512BF16:
		out.BF16 = m.rate(kcpu.OpDotBF16, d/3)
	}
	return out, nil
}

// Meter measures what threads read and multiply at most. It holds half a gigabyte of memory and a pool
// of its own until Close.
type Meter struct {
	pool   *C.vapp_pool
	l      layout
	buffer arena
	mem    *pinned
}

// OpenMeter returns a meter with a number of threads; 0 means one for each core.
func OpenMeter(threads int) (_ *Meter, err error) {
	facts, err := Opener{}.Probe()
	if err != nil {
		return nil, err
	}
	l, err := newLayout(facts, backend.Settings{Threads: threads})
	if err != nil {
		return nil, err
	}
	buffer, err := mapArena(backend.Workspace, l.Round(limitBytes), l.unit)
	if err != nil {
		return nil, err
	}
	m := &Meter{l: l, buffer: buffer, mem: &pinned{}}
	if err = m.place(); err == nil {
		m.fill()
		m.pool, err = l.startPool(0)
	}
	if err != nil {
		m.mem.pins.Unpin()
		buffer.unmap()
		return nil, err
	}
	return m, nil
}

// Close stops the pool and frees the memory.
func (m *Meter) Close() {
	C.vapp_pool_stop(m.pool)
	m.mem.pins.Unpin()
	m.buffer.unmap()
}

// Read returns the best rate of reading memory in order within d, in bytes per second.
func (m *Meter) Read(d time.Duration) float64 { return m.best(kcpu.OpRead, limitBytes, d) }

// place puts the part of the buffer that each node's threads read in the node's memory.
func (m *Meter) place() error {
	var regions []region
	for k := range m.l.nodes {
		from, to := m.l.firstPanel(limitBytes/m.l.page, k)*m.l.page, m.l.firstPanel(limitBytes/m.l.page, k+1)*m.l.page
		regions = append(regions, region{from, to - from, k})
	}
	if err := m.l.bind(m.buffer, regions); err != nil {
		return m.l.touch(m.buffer, regions)
	}
	return nil
}

// fill writes numbers to the buffer. Without that, all its pages would be one shared page of
// zeros, which stays in the cache.
func (m *Meter) fill() {
	f := unsafe.Slice((*float32)(m.buffer.at), limitBytes/4)
	for i := range f {
		f[i] = float32(i&1023 + 1)
	}
}

// limitRounds is the rounds of arithmetic in one launch, which takes a few milliseconds.
const limitRounds = 1 << 19

// rate returns floating-point operations per second.
func (m *Meter) rate(op kcpu.Op, d time.Duration) float64 {
	return m.best(op, float64(m.l.threads)*limitRounds*float64(kcpu.LimitFLOP(op, m.l.variant)), d)
}

// best returns work divided by the shortest time of a launch. It launches for d, at least
// once.
func (m *Meter) best(op kcpu.Op, work float64, d time.Duration) float64 {
	fn, ok := kcpu.Kernel(op, m.l.variant)
	if !ok {
		return 0
	}
	sink := make([]float32, 16*m.l.threads)
	m.mem.pins.Pin(&sink[0])
	args := put(m.mem, kcpu.Limit{Buffer: m.buffer.address(0), Bytes: limitBytes, Rounds: limitRounds, Sink: address(sink)})
	list := put(m.mem, phase{fn: fn, args: args})
	shortest := time.Hour
	for begin := time.Now(); ; {
		start := time.Now()
		C.run_at(m.pool, C.uintptr_t(list))
		shortest = min(shortest, time.Since(start))
		if time.Since(begin) > d {
			return work / shortest.Seconds()
		}
	}
}
