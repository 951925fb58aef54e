//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"sync"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
)

// inGraph is the OpTime.Op of graphs: their ops are not measured separately.
const inGraph = "(graph)"

// opTimer measures ops on the device by events between their launches. An event costs about a
// microsecond of device time, so shorter ops appear slower than they are.
type opTimer struct {
	mu    sync.Mutex
	times [2]map[string]*backend.OpTime // [0] steps with one token for each sequence, [1] others
	sets  []timed
	ends  []*driver.Event // ends of the last steps, twice as many as may be in progress
	steps int
}

// timed is a measured step of a set: op i took from timer i to timer i+1.
type timed struct {
	timers []*driver.Event
	ops    []string
	kind   int
	step   int
}

var _ backend.OpTimer = (*device)(nil)

// newOpTimer returns nil if ops are not measured. sets is the number of sets of step buffers.
func newOpTimer(s backend.Settings, sets int) *opTimer {
	if !s.TimeOps {
		return nil
	}
	return &opTimer{times: [2]map[string]*backend.OpTime{{}, {}}, sets: make([]timed, sets), ends: make([]*driver.Event, 2*sets)}
}

// OpTimes implements backend.OpTimer. Busy is unknown on a device.
func (d *device) OpTimes() (decode, prompts []backend.OpTime) {
	p := d.timer
	if p == nil {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var out [2][]backend.OpTime
	for kind, times := range p.times {
		for _, t := range times {
			out[kind] = append(out[kind], *t)
		}
		backend.LongestFirst(out[kind])
	}
	return out[0], out[1]
}

// measured runs a step like start and records the time of every op.
func (d *device) measured(x *executable, c *captured, b backend.Binding) error {
	p := d.timer
	t := &p.sets[b.Set]
	t.ops, t.kind, t.step = t.ops[:0], 0, p.steps
	if b.Tokens != b.Seqs {
		t.kind = 1
	}
	p.steps++
	if err := d.mark(t); err != nil {
		return err
	}
	if err := d.ops(x, c, b, func(op string) error {
		t.ops = append(t.ops, op)
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

// ops starts a step and calls done after the launches of each op or graph.
func (d *device) ops(x *executable, c *captured, b backend.Binding, done func(op string) error) error {
	if c != nil {
		if err := d.replay(c, b); err != nil {
			return err
		}
		return done(inGraph)
	}
	i := x.holds(b)
	if i < 0 {
		return errNoList(b)
	}
	list, starts, n := x.lists[b.Set][i], x.starts[i], bound(b.Tokens, b.Seqs, b.Samples)
	for op := range x.p.Ops {
		if starts[op] == starts[op+1] {
			continue
		}
		if err := d.work.run(list, starts[op], starts[op+1], n, d.sets[b.Set].limit); err != nil {
			return err
		}
		if err := done(backend.OpName(x.p.Ops[op])); err != nil {
			return err
		}
	}
	return nil
}

// mark records a timer event after the ops launched so far.
func (d *device) mark(t *timed) error {
	if len(t.timers) == len(t.ops) {
		e, err := d.ctx.Timer()
		if err != nil {
			return err
		}
		t.timers = append(t.timers, e)
	}
	return d.work.Record(t.timers[len(t.ops)])
}

// add reads the timers of a finished step.
func (p *opTimer) add(t *timed) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := func(op string, from, to *driver.Event) error {
		took, err := to.Since(from)
		if err != nil {
			return err
		}
		sum := p.times[t.kind][op]
		if sum == nil {
			sum = &backend.OpTime{Op: op}
			p.times[t.kind][op] = sum
		}
		sum.Runs, sum.Wall = sum.Runs+1, sum.Wall+took
		return nil
	}
	begins := backend.OpName(backend.Tokens{}) // every step begins with it, so its runs count steps
	for i, op := range t.ops {
		if op == inGraph {
			if err := count(begins, t.timers[i], t.timers[i]); err != nil {
				return err
			}
		}
		if err := count(op, t.timers[i], t.timers[i+1]); err != nil {
			return err
		}
	}
	if t.step == 0 {
		return nil
	}
	return count(backend.BetweenSteps, p.ends[(t.step-1)%len(p.ends)], t.timers[0])
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
