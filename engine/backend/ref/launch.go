package ref

import (
	"fmt"
	"runtime/debug"

	"vapp.dev/engine/backend"
)

// set is the state of a set of step buffers.
type set struct {
	launch  launch
	done    chan error
	running bool
	err     error
}

// launch is one run of a program, with everything its ops read.
type launch struct {
	d       *device
	e       *executable
	b       backend.Binding
	s       *backend.Step
	sampled []int32 // the other set's Sampled
	at      int32   // of Encode: the first row of the Encoded arena
	set     *set
}

// Launch checks the step and queues it.
func (d *device) Launch(e backend.Executable, b backend.Binding) error {
	x, ok := e.(*executable)
	if !ok || x.d != d {
		return fmt.Errorf("backend %s: Launch of a program that another device compiled", name)
	}
	if d.queue == nil {
		return fmt.Errorf("backend %s: Launch after Close", name)
	}
	if err := d.r.Step.CheckSet(b.Set); err != nil {
		return err
	}
	st := &d.sets[b.Set]
	if st.running {
		return &backend.StepError{Field: "Binding.Set", Why: fmt.Sprintf("set %d is still running: Wait for it first", b.Set)}
	}
	s := d.steps[b.Set]
	if x.p.Encodes() {
		return &backend.StepError{Field: "Launch", Why: "program " + x.p.Name + " is an encoder's: Encode runs it"}
	}
	if err := s.Check(x.p, b, int64(len(d.arenas[backend.KV]))); err != nil {
		return err
	}
	if err := s.CheckItems(b, d.r.Encoder); err != nil {
		return err
	}
	st.launch = launch{d: d, e: x, b: b, s: s, set: st, sampled: d.steps[d.r.Step.Before(b.Set)].Sampled}
	st.running = true
	d.queue <- &st.launch
	return nil
}

// Wait returns the error of the set's last launch.
func (d *device) Wait(set int) error {
	st := &d.sets[set]
	if st.running {
		st.err = <-st.done
		st.running = false
	}
	return st.err
}

// drain waits for the launches of all sets. A later Wait still returns their errors.
func (d *device) drain() {
	for i := range d.sets {
		if st := &d.sets[i]; st.running {
			st.err = <-st.done
			st.running = false
		}
	}
}

// serve runs launches in order, until the queue is closed.
func (d *device) serve(queue <-chan *launch) {
	for l := range queue {
		l.set.done <- l.run()
	}
}

// run runs the ops in order. A panic is a bug in this package; run turns it into the launch's
// error with the location, so that the server keeps running.
func (l *launch) run() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("backend %s: program %s: %v\n%s", name, l.e.p.Name, r, debug.Stack())
		}
	}()
	for i, op := range l.e.ops {
		if err := l.d.pool.run(l, op); err != nil {
			if g := l.d.layout.group; g != nil {
				g.Abort(err)
			}
			return fmt.Errorf("backend %s: program %s, op %d: %w", name, l.e.p.Name, i, err)
		}
	}
	return nil
}

// bytes returns a value at the launch's row count.
func (l *launch) bytes(v backend.Value) []byte {
	in := l.e.p.Values[v]
	rows := l.count(in.Rows)
	return l.d.arenas[backend.Scratch][in.Offset:][:in.Format.Bytes(int64(rows)*int64(in.Cols))]
}

func (l *launch) floats(v backend.Value) []float32 { return floats(l.bytes(v)) }
func (l *launch) ints(v backend.Value) []int32     { return view[int32](l.bytes(v)) }

// vector returns a weight stored as F32.
func (l *launch) vector(w backend.WeightID) []float32 {
	return floats(l.d.weights[w].data)[:l.e.p.Weights[w].Cols]
}

// workspace returns a worker's part of the workspace.
func (l *launch) workspace(worker int) *workspace {
	n := int64(len(l.d.arenas[backend.Workspace])) / int64(l.d.layout.threads) / 64 * 64
	return &workspace{l.d.arenas[backend.Workspace][int64(worker)*n:][:n]}
}

// workspace hands out parts of a worker's workspace.
type workspace struct{ free []byte }

func take[T any](r *workspace, n int, size int64) []T {
	b := r.free[:int64(n)*size]
	r.free = r.free[align(int64(n)*size):]
	return view[T](b)
}
