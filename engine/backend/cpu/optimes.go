//go:build cgo && linux

package cpu

import (
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"vapp.dev/engine/backend"
)

// clocks is vapp_time of pool.h: [0] for steps with one token for each sequence, [1] for
// others.
type clocks struct{ runs, wall, busy, idle [2]int64 }

// phaseTime is the time of a phase of an op.
type phaseTime struct {
	op string
	*clocks
}

// clock returns the address of the clocks for the next phase; 0 if ops are not measured.
func (c *compiler) clock() uintptr {
	if !c.d.timeOps {
		return 0
	}
	t := phaseTime{c.name, &clocks{}}
	c.mem.pins.Pin(t.clocks)
	c.times = append(c.times, t)
	return uintptr(unsafe.Pointer(t.clocks))
}

// OpTimes implements backend.OpTimer. The ops that took longest come first.
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
		if idle := atomic.LoadInt64(&t.idle[kind]); idle != 0 {
			add(backend.BetweenSteps, 0, idle, 0)
		}
	}
	backend.LongestFirst(all)
	return all
}
