// Package batch answers a list of prompts with one loaded model: it reads them as
// text or JSON Lines, keeps the engine full, and gives results in their order.
package batch

import (
	"context"
	"maps"
	"slices"
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
	out := Result{Item: it}
	run, err := r.Start(ctx, it)
	if err != nil {
		out.Err = chat.AsError(err)
		return out
	}
	defer run.Close()
	out.run = run
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

// All answers the items, many at a time, and calls tell once for each in their
// order, never twice at once. One that fails does not stop the others. When ctx
// ends nothing more is begun, what runs is cut off, and All returns ctx's error
// once tell has had all that was begun: an item between them that was not is left
// out. An error of tell ends it too.
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
	for _, at := range slices.Sorted(maps.Keys(held)) {
		if failed == nil {
			told(held[at])
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
	next, done := make(chan int), make(chan Result)
	go func() {
		defer close(next)
		for i := range items {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	var workers sync.WaitGroup
	for range min(len(items), max(1, 2*r.Slots)) {
		workers.Go(func() {
			for i := range next {
				if ctx.Err() == nil {
					res := r.Answer(ctx, items[i])
					res.At = i
					done <- res
				}
			}
		})
	}
	go func() { workers.Wait(); close(done) }()
	return done
}
