//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"sync"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
)

// inGraph is the OpTime.Op of graphs: their ops are not measured separately.
const inGraph = "(graph)"

// opTimer measures launches on the device by events between them, and sums them by op and by
// kernel. An event costs about a microsecond of device time, so shorter launches appear slower than
// they are.
type opTimer struct {
	mu      sync.Mutex
	times   [2]map[string]*backend.OpTime // [0] steps with one token for each sequence, [1] others
	kernels [2]map[string]*backend.OpTime // the same times, by kernel
	sets    []timed
	ends    []*driver.Event // ends of the last steps, twice as many as may be in progress
	steps   int
}

// timed is a measured step of a set: launch i took from timer i to timer i+1.
type timed struct {
	timers   []*driver.Event
	launches []timedLaunch
	kind     int
	step     int
}

// timedLaunch is a launch of an op, or a graph.
type timedLaunch struct {
	op, kernel string
	first      bool // of its op
}

var _ backend.OpTimer = (*device)(nil)

// newOpTimer returns nil if ops are not measured. sets is the number of sets of step buffers.
func newOpTimer(s backend.Settings, sets int) *opTimer {
	if !s.TimeOps {
		return nil
	}
	return &opTimer{times: [2]map[string]*backend.OpTime{{}, {}}, kernels: [2]map[string]*backend.OpTime{{}, {}}, sets: make([]timed, sets), ends: make([]*driver.Event, 2*sets)}
}

// OpTimes implements backend.OpTimer. Busy is unknown on a device.
func (d *device) OpTimes() (decode, prompts []backend.OpTime) {
	if p := d.timer; p != nil {
		return p.sums(&p.times)
	}
	return nil, nil
}

// KernelTimes returns what OpTimes does, by kernel, of steps that do not run as graphs (engine.Engine.KernelTimes).
func (d *device) KernelTimes() (decode, prompts []backend.OpTime) {
	if p := d.timer; p != nil {
		return p.sums(&p.kernels)
	}
	return nil, nil
}

// sums returns a copy of sums, the longest first.
func (p *opTimer) sums(of *[2]map[string]*backend.OpTime) (decode, prompts []backend.OpTime) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out [2][]backend.OpTime
	for kind, times := range of {
		for _, t := range times {
			out[kind] = append(out[kind], *t)
		}
		backend.LongestFirst(out[kind])
	}
	return out[0], out[1]
}

// measured runs a step like start and records the time of every launch.
func (d *device) measured(x *executable, c *captured, b backend.Binding) error {
	p := d.timer
	t := &p.sets[b.Set]
	t.launches, t.kind, t.step = t.launches[:0], 0, p.steps
	if b.Tokens != b.Seqs {
		t.kind = 1
	}
	p.steps++
	if err := d.mark(t); err != nil {
		return err
	}
	if err := d.each(x, c, b, func(l timedLaunch) error {
		t.launches = append(t.launches, l)
		return d.mark(t)
	}); err != nil {
		return err
	}
	end := &p.ends[t.step%len(p.ends)]
	if *end == nil {
		var err error
		if *end, err = d.ctx.Timer(); err != nil {
			return err
		}
	}
	return d.work.Record(*end)
}

// each starts a step and calls done after each launch, or after its graph. A launch without blocks
// in this step counts only where its op has no other.
func (d *device) each(x *executable, c *captured, b backend.Binding, done func(timedLaunch) error) error {
	if c != nil {
		if err := d.replay(c, b); err != nil {
			return err
		}
		return done(timedLaunch{op: inGraph, first: true})
	}
	i := x.holds(b)
	if i < 0 {
		return errNoList(b)
	}
	list, starts, n := x.lists[b.Set][i], x.starts[i], bound(b.Tokens, b.Seqs, b.Samples)
	rows := backend.Bucket{Tokens: b.Tokens, Seqs: b.Seqs, Samples: b.Samples}
	for op := range x.p.Ops {
		first := true
		for at := starts[op]; at < starts[op+1]; at++ {
			l := x.launches[i][at]
			grid := l.grid(rows)
			if grid[0]*grid[1]*grid[2] == 0 && at+1 < starts[op+1] {
				continue // it is skipped
			}
			if err := d.work.run(list, at, at+1, n, d.sets[b.Set].limit); err != nil {
				return err
			}
			if err := done(timedLaunch{backend.OpName(x.p.Ops[op]), l.kernel, first}); err != nil {
				return err
			}
			first = false
		}
	}
	return nil
}

// mark records a timer event after the launches so far.
func (d *device) mark(t *timed) error {
	if len(t.timers) == len(t.launches) {
		e, err := d.ctx.Timer()
		if err != nil {
			return err
		}
		t.timers = append(t.timers, e)
	}
	return d.work.Record(t.timers[len(t.launches)])
}

// add reads the timers of a finished step.
func (p *opTimer) add(t *timed) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	times := p.times[t.kind]
	for i, l := range t.launches {
		took, err := t.timers[i+1].Since(t.timers[i])
		if err != nil {
			return err
		}
		if l.op == inGraph { // every step begins with the tokens, so their runs count steps
			addTime(times, backend.OpName(backend.Tokens{}), 1, 0)
		} else {
			addTime(p.kernels[t.kind], l.kernel, 1, took)
		}
		runs := int64(0)
		if l.first {
			runs = 1
		}
		addTime(times, l.op, runs, took)
	}
	if t.step == 0 {
		return nil
	}
	took, err := t.timers[0].Since(p.ends[(t.step-1)%len(p.ends)])
	if err != nil {
		return err
	}
	addTime(times, backend.BetweenSteps, 1, took)
	return nil
}

func addTime(sums map[string]*backend.OpTime, name string, runs int64, took time.Duration) {
	s := sums[name]
	if s == nil {
		s = &backend.OpTime{Op: name}
		sums[name] = s
	}
	s.Runs, s.Wall = s.Runs+runs, s.Wall+took
}

// close frees the timers.
func (p *opTimer) close() error {
	if p == nil {
		return nil
	}
	var errs []error
	for _, e := range append(append(p.ends[:len(p.ends):len(p.ends)], p.sets[0].timers...), p.sets[1].timers...) {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	return errors.Join(errs...)
}
