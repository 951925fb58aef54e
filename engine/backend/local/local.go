// Package local connects ranks that are goroutines of one process. The tests run models on several ranks with it. It
// must not know what the values are. Start reading at New in local.go.
package local

import (
	"fmt"
	"sync"

	"vapp.dev/engine/backend"
)

// world is what all ranks share. A rank that waits is woken by every change.
type world struct {
	mu     sync.Mutex
	change sync.Cond
	stages []meeting
	wires  [][]wire // by sending stage and tensor parallel rank
	err    error
}

// meeting is where the tensor parallel ranks of a stage bring the value of a call. The last one to come
// computes the result; the call has ended for all when each has left.
type meeting struct {
	calls   []call
	came    int
	leaving int
}

// call is what a rank passed to AllReduce or AllGather.
type call struct {
	op   string
	x, y []float32
	cols int
}

// wire is a value on its way to the next stage.
type wire struct {
	x    []float32
	full bool
}

// New returns the groups of tensor·pipe ranks, those of a stage behind each other.
func New(tensor, pipe int) []backend.Group {
	w := &world{stages: make([]meeting, pipe), wires: make([][]wire, pipe)}
	w.change.L = &w.mu
	var out []backend.Group
	for stage := range pipe {
		w.stages[stage].calls = make([]call, tensor)
		w.wires[stage] = make([]wire, tensor)
		for rank := range tensor {
			out = append(out, &group{w, backend.Shard{Rank: rank, World: tensor}, backend.Shard{Rank: stage, World: pipe}})
		}
	}
	return out
}

// group is a rank's view of the world.
type group struct {
	w            *world
	tensor, pipe backend.Shard
}

func (g *group) Tensor() backend.Shard { return g.tensor }
func (g *group) Pipe() backend.Shard   { return g.pipe }

func (g *group) AllReduce(x []float32) error { return g.meet(call{op: "all_reduce", x: x}) }

func (g *group) AllGather(x, y []float32, cols int) error {
	if cols <= 0 || len(x)%cols != 0 || len(y) != len(x)*g.tensor.World {
		return g.fail(fmt.Errorf("local group: all_gather of %d numbers in rows of %d to %d", len(x), cols, len(y)))
	}
	return g.meet(call{"all_gather", x, y, cols})
}

// meet brings a rank's call to the meeting of its stage and returns when it is done.
func (g *group) meet(c call) error {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	m := &g.w.stages[g.pipe.Rank]
	if err := g.w.until(func() bool { return m.leaving == 0 }); err != nil {
		return err
	}
	m.calls[g.tensor.Rank] = c
	if m.came++; m.came < g.tensor.World {
		if err := g.w.until(func() bool { return m.leaving > 0 }); err != nil {
			return err
		}
	} else {
		if err := m.compute(); err != nil {
			return g.w.abort(err)
		}
		m.came, m.leaving = 0, g.tensor.World
		g.w.change.Broadcast()
	}
	if m.leaving--; m.leaving == 0 {
		g.w.change.Broadcast()
	}
	return nil
}

// compute computes the results of all ranks' calls.
func (m *meeting) compute() error {
	first := m.calls[0]
	for rank, c := range m.calls {
		if c.op != first.op || len(c.x) != len(first.x) || c.cols != first.cols {
			return fmt.Errorf("local group: rank 0 calls %s of %d numbers, rank %d %s of %d", first.op, len(first.x), rank, c.op, len(c.x))
		}
	}
	if first.op == "all_gather" {
		m.gather(first.cols)
		return nil
	}
	for i := range first.x {
		sum := first.x[i]
		for _, c := range m.calls[1:] {
			sum += c.x[i]
		}
		for _, c := range m.calls {
			c.x[i] = sum
		}
	}
	return nil
}

// gather copies the rows of every rank to those of all.
func (m *meeting) gather(cols int) {
	for _, to := range m.calls {
		for rank, c := range m.calls {
			for row := range len(c.x) / cols {
				copy(to.y[(row*len(m.calls)+rank)*cols:], c.x[row*cols:(row+1)*cols])
			}
		}
	}
}

func (g *group) Send(x []float32) error {
	if g.pipe.Rank+1 == g.pipe.World {
		return g.fail(fmt.Errorf("local group: the last of %d stages sends", g.pipe.World))
	}
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	to := &g.w.wires[g.pipe.Rank][g.tensor.Rank]
	if err := g.w.until(func() bool { return !to.full }); err != nil {
		return err
	}
	to.x, to.full = append(to.x[:0], x...), true
	g.w.change.Broadcast()
	return nil
}

func (g *group) Receive(x []float32) error {
	if g.pipe.Rank == 0 {
		return g.fail(fmt.Errorf("local group: the first of %d stages receives", g.pipe.World))
	}
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	from := &g.w.wires[g.pipe.Rank-1][g.tensor.Rank]
	if err := g.w.until(func() bool { return from.full }); err != nil {
		return err
	}
	if len(from.x) != len(x) {
		return g.w.abort(fmt.Errorf("local group: stage %d sent %d numbers, stage %d receives %d", g.pipe.Rank-1, len(from.x), g.pipe.Rank, len(x)))
	}
	copy(x, from.x)
	from.full = false
	g.w.change.Broadcast()
	return nil
}

func (g *group) Abort(err error) { g.fail(err) }

func (g *group) fail(err error) error {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	return g.w.abort(err)
}

// abort keeps the first error and wakes all ranks. The caller holds the lock.
func (w *world) abort(err error) error {
	if w.err == nil {
		w.err = err
	}
	w.change.Broadcast()
	return w.err
}

// until waits for a condition, or for an error. The caller holds the lock.
func (w *world) until(done func() bool) error {
	for w.err == nil && !done() {
		w.change.Wait()
	}
	return w.err
}
