package engine_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"vapp.dev/engine"
)

// follower is an observer that keeps what it gets.
type follower struct {
	mu        sync.Mutex
	submitted []engine.Request
	ended     []engine.RequestStats
}

func (f *follower) Submitted(r engine.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.submitted = append(f.submitted, r)
}

func (f *follower) Ended(s engine.RequestStats) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, s)
}

// TestObserver runs requests with so few pages that some are preempted: each observer gets its own
// request and the end of each choice, and the preemptions are those that the engine counts. The
// steps name the observers of their times.
func TestObserver(t *testing.T) {
	y := newToy(t)
	y.slabs = 1
	var firsts, betweens int
	y.hooks.Step = func(s engine.StepStats) {
		if len(s.FirstObservers) != len(s.FirstTokens) || len(s.BetweenObservers) != len(s.BetweenTokens) {
			t.Errorf("%d and %d observers of %d and %d times", len(s.FirstObservers), len(s.BetweenObservers), len(s.FirstTokens), len(s.BetweenTokens))
		}
		if slices.Contains(s.FirstObservers, nil) || slices.Contains(s.BetweenObservers, nil) {
			t.Error("a time without its observer")
		}
		firsts, betweens = firsts+len(s.FirstObservers), betweens+len(s.BetweenObservers)
	}
	e := y.open(t)
	const n = 12
	var all []*engine.Stream
	observers := make([]*follower, n)
	for i := range n {
		observers[i] = &follower{}
		s, err := e.Submit(engine.WithObserver(context.Background(), observers[i]), request(i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s...)
	}
	for _, s := range all {
		collect(t, s)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	var preempted int64
	for i, f := range observers {
		want := request(i)
		if len(f.submitted) != 1 || f.submitted[0].ID != want.ID || f.submitted[0].N != want.N || len(f.ended) != want.N {
			t.Fatalf("%s: %d submitted, %d choices ended, want 1 and %d", want.ID, len(f.submitted), len(f.ended), want.N)
		}
		for _, s := range f.ended {
			if s.ID != want.ID || s.Finish != engine.FinishLength || s.GenerationTokens != want.Params.MaxTokens || s.Observer != engine.Observer(f) {
				t.Errorf("%s ended with %+v", want.ID, s)
			}
			for _, at := range s.Preempted {
				if preempted++; at.Before(s.Scheduled) || at.After(s.Finished) {
					t.Errorf("%s: preempted at %v, scheduled at %v, finished at %v", want.ID, at, s.Scheduled, s.Finished)
				}
			}
		}
	}
	if got := e.Stats().Preemptions; preempted == 0 || preempted != got {
		t.Errorf("observers got %d preemptions, the engine counts %d", preempted, got)
	}
	if firsts != len(all) || betweens == 0 {
		t.Errorf("%d first tokens of %d choices, %d between", firsts, len(all), betweens)
	}
}

// TestObserverRefused: the observer of a request that is refused is not called, and Submit uses no
// more of its context than the observer.
func TestObserverRefused(t *testing.T) {
	e := newToy(t).open(t)
	f := &follower{}
	ctx := engine.WithObserver(context.Background(), f)
	r := request(1)
	r.Params.MaxTokens = 1 << 20
	if _, err := e.Submit(ctx, r); err == nil || len(f.submitted)+len(f.ended) != 0 {
		t.Errorf("%v, %d submitted, %d ended", err, len(f.submitted), len(f.ended))
	}
	gone, stop := context.WithDeadline(ctx, time.Now()) // Submit takes its observer only
	defer stop()
	s, err := e.Submit(gone, request(0))
	if err != nil {
		t.Fatal(err)
	}
	if _, last := collect(t, s[0]); last.Finish != engine.FinishLength || len(f.submitted) != 1 {
		t.Errorf("%v, %d submitted", last.Finish, len(f.submitted))
	}
}
