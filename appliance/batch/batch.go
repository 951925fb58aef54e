// Package batch answers a list of prompts with one loaded model: it reads them as text
// or JSON Lines, keeps the engine busy, and returns results in the order of the prompts.
// It must not import the engine or HTTP: it needs only a Starter. Start reading at
// Runner.All in this file; item.go reads prompts, line.go writes results.
package batch

import (
	"context"
	"slices"
	"sync"

	"vapp.dev/appliance/chat"
)

// Starter starts the run of a request; *chat.Service implements it.
type Starter interface {
	Start(context.Context, *chat.Request) (*chat.Run, error)
}

// Runner answers Items.
type Runner struct {
	Service  Starter
	Settings *chat.Settings
	// Slots is the number of sequences that the engine runs at once. The Runner
	// keeps twice as many prompts in the engine.
	Slots int
}

// Result is the result of an Item.
type Result struct {
	Item    Item
	At      int          // index of the item in the list
	Replies []chat.Reply // possibly incomplete; Finish is "abort" for an interrupted reply
	Usage   chat.Usage
	Err     *chat.Error // why the reply is missing or incomplete

	run *chat.Run
}

// Interrupted reports whether the reply is incomplete because the caller's context was
// cancelled.
func (r Result) Interrupted() bool { return r.Err != nil && r.Err.Kind == chat.Gone }

// Start starts the run of one item. Its errors are *chat.Error.
func (r Runner) Start(ctx context.Context, it Item) (*chat.Run, error) {
	if it.err != nil {
		return nil, it.err
	}
	req, err := chat.NewRequest(*it.ask, r.Settings)
	if err != nil {
		return nil, err
	}
	return r.Service.Start(ctx, req)
}

// Answer waits for the whole reply to one item.
func (r Runner) Answer(ctx context.Context, it Item) Result {
	run, err := r.Start(ctx, it)
	return waitResult(ctx, it, run, err)
}

// waitResult waits for the reply of a run; err is the error of starting it.
func waitResult(ctx context.Context, it Item, run *chat.Run, err error) Result {
	out := Result{Item: it, run: run}
	if err != nil {
		out.Err = chat.AsError(err)
		return out
	}
	defer run.Close()
	out.Replies, err = run.Wait(ctx)
	if err = interruption(ctx, out.Replies, err); err != nil {
		out.Err = chat.AsError(err)
		for i := range out.Replies {
			if out.Replies[i].Finish == "" {
				out.Replies[i].Finish = "abort"
			}
		}
	}
	out.Usage = run.Usage()
	return out
}

// interruption returns the error of a run that was waited for with ctx. When ctx is cancelled, the
// engine aborts the run: if its last tokens arrive before ctx is looked at, Wait returns no error.
func interruption(ctx context.Context, replies []chat.Reply, err error) error {
	aborted := func(r chat.Reply) bool { return r.Finish == "abort" }
	if err == nil && slices.ContainsFunc(replies, aborted) {
		return ctx.Err()
	}
	return err
}

// All answers the items, many at a time. It starts them in order, and calls yield for
// each result in the same order, one call at a time. A failed item does not stop the
// others. When ctx is cancelled, All starts no more items, aborts the running ones, yields
// the results of all started items, and returns ctx's error. It also stops at an error of
// yield.
func (r Runner) All(ctx context.Context, items []Item, yield func(Result) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	waiting, at, complete := map[int]Result{}, 0, 0
	var failed error
	pass := func(res Result) {
		if !res.Interrupted() {
			complete++
		} else if res.run == nil {
			return
		}
		if failed = yield(res); failed != nil {
			stop(failed)
		}
	}
	for n := range r.answers(ctx, items) {
		waiting[n.At] = n
		for res, ok := waiting[at]; ok && failed == nil; res, ok = waiting[at] {
			delete(waiting, at)
			at++
			pass(res)
		}
	}
	switch {
	case failed != nil:
		return failed
	case complete == len(items):
		return nil
	}
	return context.Cause(ctx)
}

// answers returns a channel of results in the order of their completion. It is closed
// after the last one.
func (r Runner) answers(ctx context.Context, items []Item) <-chan Result {
	done := make(chan Result)
	go func() {
		defer close(done)
		var begun sync.WaitGroup
		defer begun.Wait()
		slots := make(chan struct{}, max(1, 2*r.Slots))
		for i, it := range items {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				return
			}
			run, err := r.Start(ctx, it) // in order, since the engine schedules first come first served
			begun.Go(func() {
				res := waitResult(ctx, it, run, err)
				res.At = i
				<-slots
				done <- res
			})
		}
	}()
	return done
}
