package fairqueue

import (
	"context"
	"errors"
	"sync"
)

// ErrFull is the error of a job that a full queue refuses.
var ErrFull = errors.New("too many jobs are waiting")

// Gate lets a number of jobs in at once; the others wait in a Queue. It may be used from
// any goroutine.
type Gate struct {
	mu      sync.Mutex
	free    int
	waiting *Queue
}

// NewGate returns a gate of that many places, for which at most waiting jobs may wait.
func NewGate(places, waiting int) *Gate {
	return &Gate{free: places, waiting: NewQueue(waiting)}
}

// Enter waits for a place for the client of ctx. The caller calls leave when the job is
// done; further calls of it do nothing. The error is ErrFull, or the cause of ctx's end.
func (g *Gate) Enter(ctx context.Context, cost int) (leave func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	j := &Job{Client: Client(ctx), Cost: cost, ready: make(chan error, 1)}
	g.add(j)
	select {
	case err = <-j.ready:
	case <-ctx.Done():
		if err = context.Cause(ctx); !g.withdraw(j) && <-j.ready == nil {
			g.leave() // the place came at the same moment
		}
	}
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(g.leave), nil
}

// Idle reports whether no job has a place or waits, of a gate of that many places.
func (g *Gate) Idle(places int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.free == places && g.waiting.Len() == 0
}

// add gives the job a place or lets it wait.
func (g *Gate) add(j *Job) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.free > 0 {
		g.free--
		j.ready <- nil
		return
	}
	if refused := g.waiting.Push(j); refused != nil {
		refused.ready <- ErrFull
	}
}

// withdraw removes a job that waits; false: it has its answer.
func (g *Gate) withdraw(j *Job) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting.Remove(j)
}

// leave gives the place to the next job.
func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if j := g.waiting.Next(); j != nil {
		j.ready <- nil
		return
	}
	g.free++
}
