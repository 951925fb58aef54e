// Package batch answers a list of prompts with one loaded model: it reads them as
// text or JSON Lines, keeps the engine full, and gives results in their order.
package batch

import (
	"context"
	"sync"

	"vapp.dev/appliance/chat"
)

// Starter begins to answer a request; *chat.Service is one.
type Starter interface {
	Start(context.Context, *chat.Request) (*chat.Run, error)
}

// Runner answers Items.
type Runner struct {
	Service  Starter
	Settings *chat.Settings
	// Slots is how many sequences the engine runs at once; the Runner keeps twice
	// as many prompts with it.
	Slots int
}

// Result is what became of an Item.
type Result struct {
	Item    Item
	At      int          // its place in the list, from 0
	Replies []chat.Reply // what there is; Finish is "abort" where it was cut off
	Usage   chat.Usage
	Err     *chat.Error // why there is no reply, or no whole one

	run *chat.Run
}

// Interrupted reports that the reply was cut off because the caller's context
// ended.
func (r Result) Interrupted() bool { return r.Err != nil && r.Err.Kind == chat.Gone }

// Start begins to answer one item. Its errors are *chat.Error.
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
	return whole(ctx, it, run, err)
}

// whole waits for the reply of a run, or says why there is none.
func whole(ctx context.Context, it Item, run *chat.Run, err error) Result {
	out := Result{Item: it, run: run}
	if err != nil {
		out.Err = chat.AsError(err)
		return out
	}
	defer run.Close()
	if out.Replies, err = run.Wait(ctx); err != nil {
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

// All answers the items, many at a time, and calls tell once for each, never twice
// at once. They are begun in their order and told in it. One that fails does not
// stop the others. When ctx ends nothing more is begun, what runs is cut off, and All
// returns ctx's error once tell has had all that was begun. An error of tell ends it
// too.
func (r Runner) All(ctx context.Context, items []Item, tell func(Result) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	held, at, whole := map[int]Result{}, 0, 0
	var failed error
	told := func(res Result) {
		if !res.Interrupted() {
			whole++
		} else if res.run == nil {
			return
		}
		if failed = tell(res); failed != nil {
			stop(failed)
		}
	}
	for n := range r.answers(ctx, items) {
		held[n.At] = n
		for res, ok := held[at]; ok && failed == nil; res, ok = held[at] {
			delete(held, at)
			at++
			told(res)
		}
	}
	switch {
	case failed != nil:
		return failed
	case whole == len(items):
		return nil
	}
	return context.Cause(ctx)
}

// answers gives results as they come; the channel is closed after the last one.
func (r Runner) answers(ctx context.Context, items []Item) <-chan Result {
	done := make(chan Result)
	go func() {
		defer close(done)
		var begun sync.WaitGroup
		defer begun.Wait()
		room := make(chan struct{}, max(1, 2*r.Slots))
		for i, it := range items {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				return
			}
			run, err := r.Start(ctx, it) // one after the other: the engine serves who came first
			begun.Go(func() {
				res := whole(ctx, it, run, err)
				res.At = i
				<-room
				done <- res
			})
		}
	}()
	return done
}
