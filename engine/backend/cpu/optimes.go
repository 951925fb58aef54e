//go:build cgo && linux

package cpu

import (
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"vapp.dev/engine/backend"
)

// clocks is vapp_time of pool.h: of steps whose sequences have one token each, and of
// others.
type clocks struct{ runs, wall, busy, idle [2]int64 }

// phaseTime is the time of a phase of an op.
type phaseTime struct {
	op string
	*clocks
}

// clock is the address of the clocks of the phase that comes next; 0 where nothing is
// measured.
func (c *compiler) clock() uintptr {
	if !c.d.profile {
		return 0
	}
	t := phaseTime{c.name, &clocks{}}
	c.mem.pins.Pin(t.clocks)
	c.times = append(c.times, t)
	return uintptr(unsafe.Pointer(t.clocks))
}

// OpTimes is backend.OpTimer's, the ops that took longest first.
func (d *device) OpTimes() (decode, prompts []backend.OpTime) {
	return d.opTimes(0), d.opTimes(1)
}

func (d *device) opTimes(kind int) []backend.OpTime {
	var all []backend.OpTime
	add := func(op string, runs, wall, busy int64) {
		i := slices.IndexFunc(all, func(t backend.OpTime) bool { return t.Op == op })
		if i < 0 {
			i, all = len(all), append(all, backend.OpTime{Op: op})
		}
		all[i].Runs += runs
		all[i].Wall += time.Duration(wall)
		all[i].Busy += time.Duration(busy)
	}
	for _, t := range d.times {
		add(t.op, atomic.LoadInt64(&t.runs[kind]), atomic.LoadInt64(&t.wall[kind]), atomic.LoadInt64(&t.busy[kind]))
		if idle := atomic.LoadInt64(&t.idle[kind]); idle > 0 {
			add(backend.BetweenSteps, 0, idle, 0)
		}
	}
	backend.LongestFirst(all)
	return all
}
