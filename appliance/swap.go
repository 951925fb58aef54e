package appliance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/schema"
)

// swaps runs at most one swap at a time.
type swaps struct {
	mu      sync.Mutex
	opening context.Context // cancelled when the server is asked to end: no engine is opened any more
	lasting context.Context // cancelled when the server ends at once
	stop    context.CancelFunc
	open    chan struct{} // closed when the running swap opens nothing any more; nil: none runs
	ended   chan struct{} // closed when the running swap has ended; nil: none runs
}

// start allows swaps until ctx ends.
func (s *swaps) start(ctx, hard context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening, s.stop = context.WithCancel(ctx)
	s.lasting = hard
}

// run runs a swap in a goroutine of its own. do calls opened when it opens nothing any more. run returns a channel that is
// closed when another swap can run; nil if a swap runs already or the server ends.
func (s *swaps) run(do func(opening, lasting context.Context, opened func())) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || s.opening == nil || s.opening.Err() != nil {
		return nil
	}
	open, ended := make(chan struct{}), make(chan struct{})
	s.open, s.ended = open, ended
	go func() {
		opened := sync.OnceFunc(func() { close(open) })
		do(s.opening, s.lasting, opened)
		opened()
		s.mu.Lock()
		s.open, s.ended = nil, nil
		s.mu.Unlock()
		close(ended)
	}()
	return ended
}

// running reports whether a swap runs.
func (s *swaps) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended != nil
}

// await waits until no swap runs; it returns false when the server ends.
func (s *swaps) await() bool {
	s.mu.Lock()
	ended, opening := s.ended, s.opening
	s.mu.Unlock()
	if ended == nil {
		return opening.Err() == nil
	}
	select {
	case <-ended:
		return true
	case <-opening.Done():
		return false
	}
}

// solo runs a function in a goroutine, unless it runs already.
type solo struct{ busy atomic.Bool }

// run calls do until again returns false, unless another call does.
func (s *solo) run(do func(), again func() bool) {
	if !s.busy.CompareAndSwap(false, true) {
		return
	}
	go func() {
		do()
		s.busy.Store(false)
		if again() { // a caller may have come in between
			s.run(do, again)
		}
	}()
}

// stopOpening cancels the opening of an engine, and waits for its end at most that long. It reports whether it ended.
func (s *swaps) stopOpening(limit time.Duration) bool {
	return s.wait(limit, func() chan struct{} { return s.open })
}

// end is stopOpening for the whole swap.
func (s *swaps) end(limit time.Duration) bool {
	return s.wait(limit, func() chan struct{} { return s.ended })
}

func (s *swaps) wait(limit time.Duration, of func() chan struct{}) bool {
	s.mu.Lock()
	s.stop()
	c := of()
	s.mu.Unlock()
	if c == nil {
		return true
	}
	select {
	case <-c:
		return true
	case <-time.After(limit):
		return false
	}
}

// swap replaces the engine old by that of next.
type swap struct {
	a       *Appliance
	old     *served
	next    *Prepared
	way     plan.Transition
	newest  *schema.Profile // as it was read
	live    *live           // of next
	trigger string
	changes []string
	diff    string // of the plans

	adapters *adapterSet // of the old engine when it was closed; nil: it is open

	begun time.Time
	gap   time.Duration // for which no engine took requests
}

// run replaces the engine. The server goes on with the old one if the new one cannot be opened.
func (s *swap) run(opening, lasting context.Context, opened func()) {
	s.begun = s.a.reloader.now()
	if s.way.Overlaps {
		s.beside(opening, lasting, opened)
		return
	}
	s.afterDrain(opening, lasting, opened)
}

// beside opens the new engine while the old one serves.
func (s *swap) beside(opening, lasting context.Context, opened func()) {
	a := s.a
	a.limitHeap(s.way.GoMemoryLimit)
	fresh, err := s.openKeeping(opening)
	opened()
	if err != nil {
		a.limitHeap(s.old.prepared.Plan.GoMemoryLimit)
		a.reloader.notSwapped(s, err)
		return
	}
	a.reloader.swapped(s, fresh)
	a.retire(lasting, s.old)
	s.discardOld()
	a.reloader.swapEnded()
}

// leave returns the adapters of the old engine. Later changes of clients reach fresh too.
func (s *swap) leave(fresh *served) adapterSet {
	if s.adapters != nil {
		return *s.adapters
	}
	if s.old.adapters != nil && fresh.adapters != nil {
		s.old.adapters.over.next.Store(fresh.adapters)
	}
	return s.a.adapterSet(s.old)
}

// openKeeping opens the new engine, with the weights of the old one if they stay, and lets it compute a token.
func (s *swap) openKeeping(ctx context.Context) (*served, error) {
	from := predecessor{adapters: s.a.adapterSet(s.old)}
	if s.way.KeepsWeights {
		w, err := s.old.engine.Weights()
		if err != nil {
			return nil, err
		}
		defer w.Close() // the new engine has its own reference
		from.weights = w
	}
	return s.a.openTried(ctx, s.next, s.next.Profile, from)
}

// openTried opens the engine of p, with the LoRA adapters of a profile and what it takes over, and lets it compute a token. It logs when there is no progress.
func (a *Appliance) openTried(ctx context.Context, p *Prepared, of *schema.Profile, from predecessor) (s *served, err error) {
	abandoned, err := a.watchLoad(ctx, func(progress func(engine.Progress)) (err error) {
		progress, loaded := a.traces.Loading(progress)
		s, err = a.openServed(ctx, p, of, from, progress)
		loaded(err)
		if err != nil {
			return err
		}
		if err = s.try(ctx); err != nil {
			return errors.Join(fmt.Errorf("first token: %w", err), s.engine.Close())
		}
		return nil
	})
	if abandoned {
		return nil, err // the load may still use s
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// afterDrain closes the old engine before it opens the new one. Requests wait meanwhile. If the new engine cannot be
// opened it opens the old one again; if that fails too, the server ends.
func (s *swap) afterDrain(opening, lasting context.Context, opened func()) {
	defer opened()
	a := s.a
	closed := a.reloader.now()
	expected := time.Time{}
	if g := s.way.Gap; g.Load > 0 {
		expected = closed.Add(g.Load.Time())
	}
	a.phase.reload()
	a.door.hold(a.live.Load().profile.Reload.Queue, expected, nil)
	a.retire(lasting, s.old)
	from := predecessor{adapters: a.adapterSet(s.old)}
	s.adapters = &from.adapters
	var err error
	if s.way.KeepsWeights {
		if from.weights, err = s.old.engine.Weights(); err == nil {
			defer from.weights.Close()
		}
	}
	err = errors.Join(err, a.closeServed(s.old))
	var fresh *served
	if err == nil {
		fresh, err = a.openTried(opening, s.next, s.next.Profile, from)
	}
	s.gap = a.reloader.now().Sub(closed)
	if err == nil {
		a.limitHeap(s.next.Plan.GoMemoryLimit)
		a.reloader.swapped(s, fresh)
		s.discardOld()
		a.reloader.swapEnded()
		return
	}
	if opening.Err() != nil {
		a.door.close(a.notReady)
		s.next.Close()
		return
	}
	a.log.Error("the new engine cannot be opened; the last good one is opened again", "error", err)
	again, back := a.openTried(opening, s.old.prepared, a.live.Load().profile, from)
	if back != nil {
		a.door.close(a.notReady)
		if opening.Err() == nil {
			a.fatal(errors.Join(err, fmt.Errorf("the last good engine cannot be opened again: %w", back)))
		}
		return
	}
	s.gap = a.reloader.now().Sub(closed)
	a.reloader.restored(s, again, err)
}

// retire waits until no request is inside s, at most serve.drainTimeout. It counts the requests that are left; they
// are aborted when s is closed.
func (a *Appliance) retire(ctx context.Context, s *served) {
	limit := time.Duration(a.live.Load().profile.Serve.DrainTimeout)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-a.door.emptied(s):
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	left := a.door.count(s)
	a.log.Warn("requests of the engine that ends had not ended and are aborted; serve.drainTimeout is the limit", "requests", left, "after", limit.String())
	a.metrics.CountAborted(left)
}

// discardOld closes the old engine, and its model when its last request has gone.
func (s *swap) discardOld() {
	if err := s.a.closeServed(s.old); err != nil {
		s.a.log.Error("the replaced engine did not close", "error", err)
	}
	s.a.limitHeap(s.next.Plan.GoMemoryLimit)
	s.a.closeModel(s.old)
}

// closeModel closes the files of a closed engine's model when its last request has gone.
func (a *Appliance) closeModel(s *served) {
	emptied := a.door.emptied(s)
	go func() {
		<-emptied
		if err := s.prepared.Close(); err != nil {
			a.log.Error("the files of the replaced model did not close", "error", err)
		}
	}()
}
