package fairqueue

import (
	"context"
	"errors"
	"sync"
)

// ErrFull is returned for a job that a full queue refuses.
var ErrFull = errors.New("too many jobs are waiting")

// Gate admits a limited number of jobs at once; the others wait in a Queue. It is safe for
// concurrent use.
type Gate struct {
	mu      sync.Mutex
	free    int
	waiting *Queue
}

// NewGate returns a gate with that many places and at most waiting jobs in its queue.
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
			g.leave() // the job got its place at the same moment
		}
	}
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(g.leave), nil
}

// Idle reports whether no job has a place or waits. places is the gate's number of places.
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

// withdraw removes a waiting job. It returns false if the job has its answer already.
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
