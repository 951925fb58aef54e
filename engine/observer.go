package engine

import (
	"context"
	"time"

	"vapp.dev/engine/sched"
)

// Observer follows the requests that are submitted with the context of WithObserver. Its methods
// are called by several goroutines, one of them the loop, and must not block.
type Observer interface {
	// Submitted is called before a request is queued, with N ≥ 1. Ended follows for each of its N
	// choices.
	Submitted(Request)
	// Ended is called once for each choice, with the statistics that Hooks.Finished gets. Choices
	// that could not be queued end at once with FinishError.
	Ended(RequestStats)
}

type observerKey struct{}

// WithObserver returns a context whose requests o follows.
func WithObserver(ctx context.Context, o Observer) context.Context {
	return context.WithValue(ctx, observerKey{}, o)
}

// ObserverOf returns the observer of a context, nil if it has none.
func ObserverOf(ctx context.Context) Observer {
	o, _ := ctx.Value(observerKey{}).(Observer)
	return o
}

// observe reports a request to its observer, before its choices are queued.
func observe(o Observer, r Request, cs []*choice) {
	if o == nil {
		return
	}
	for _, c := range cs {
		c.stats.Observer = o
	}
	r.N = len(cs)
	o.Submitted(r)
}

// unobserve ends choices that were observed and could not be queued.
func unobserve(o Observer, cs []*choice) {
	if o == nil {
		return
	}
	for _, c := range cs {
		c.stats.Finish, c.stats.Finished = FinishError, time.Now()
		o.Ended(c.stats)
	}
}

// maxPreempted is how many times of RequestStats.Preempted are kept.
const maxPreempted = 16

// notePreempted adds the time of a step's preemptions to the statistics of the choices that lost
// their pages in it.
func (l *loop) notePreempted(s *sched.Step, at time.Time) {
	if s.Stats.Preempted == 0 {
		return
	}
	for q, c := range l.choices {
		if n := q.Preemptions(); n > c.preemptions {
			if c.preemptions = n; len(c.stats.Preempted) < maxPreempted {
				c.stats.Preempted = append(c.stats.Preempted, at)
			}
		}
	}
}
