package appliance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/plan"
)

// residences decides which models that are loaded on request are in memory. A model that is asked for takes the place of
// those that have had no request for the longest time; models with requests stay.
type residences struct {
	members func() []resident
	fits    func(loaded []int, next map[int]*plan.Plan) bool
	leave   func(member int) // called when a model has left the memory
	enter   func(member int)
	tick    func() (<-chan time.Time, func()) // when it is looked again whether a model is idle
	limit   func(context.Context) (context.Context, context.CancelFunc)

	mu     sync.Mutex
	loaded map[int]bool       // of models loaded on request
	next   map[int]*plan.Plan // of engines that are to replace others
	left   chan struct{}      // closed when one leaves
}

// resident is a server whose model may have to leave the memory.
type resident interface {
	Idle() (since time.Time, ok bool)
	Unload(context.Context) bool
	profileName() string
	onRequest() bool
}

func newResidences(f *Fleet) *residences {
	return &residences{
		members: func() (out []resident) {
			for _, a := range f.members {
				out = append(out, a)
			}
			return out
		},
		fits:  f.fits,
		leave: func(i int) { f.heap.set(i, f.members[i].prepared().Plan.UnloadedHeap()) },
		enter: func(i int) { f.heap.set(i, f.members[i].prepared().Plan.GoMemoryLimit) },
		tick: func() (<-chan time.Time, func()) {
			t := time.NewTicker(20 * time.Millisecond)
			return t.C, t.Stop
		},
		limit: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, longestWait)
		},
		loaded: map[int]bool{}, next: map[int]*plan.Plan{}, left: make(chan struct{}),
	}
}

// fits reports whether the models of these members can be in memory at once, with the plans of their engines and with
// those that are to replace them.
func (f *Fleet) fits(loaded []int, next map[int]*plan.Plan) bool {
	var now, then []*plan.Plan
	for i, a := range f.members {
		p := a.prepared().Plan
		now = append(now, p)
		if next[i] != nil {
			p = next[i]
		}
		then = append(then, p)
	}
	return plan.FitTogether(now, loaded) && plan.FitTogether(then, loaded)
}

func (a *Appliance) profileName() string { return a.prepared().Profile.Name }

func (a *Appliance) onRequest() bool { return a.cfg.Residency != nil }

// residence is the place of one member.
type residence struct {
	of    *residences
	index int
}

// Enter implements Residency.
func (r residence) Enter(ctx context.Context) error { return r.of.take(ctx, r.index) }

// Leave implements Residency.
func (r residence) Leave() { r.of.free(r.index) }

// take waits until the model of a member may be in memory. It unloads idle ones for it.
func (r *residences) take(ctx context.Context, i int) error {
	ctx, stop := r.limit(ctx)
	defer stop()
	tick, end := r.tick()
	defer end()
	for {
		left, ok := r.try(i)
		if ok {
			return nil
		}
		if r.unloadOne(ctx, i) {
			continue
		}
		select {
		case <-left:
		case <-tick:
		case <-ctx.Done():
			return r.refuse(i)
		}
	}
}

// try reserves the memory of a member if it is free. left is closed when more becomes free.
func (r *residences) try(i int) (left <-chan struct{}, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.fits(append(r.inMemory(i), i), r.next) {
		return r.left, false
	}
	r.loaded[i] = true
	r.enter(i)
	return nil, true
}

// inMemory returns the other members whose model is in memory, or may be at any time. It needs the lock.
func (r *residences) inMemory(but int) (all []int) {
	for k, m := range r.members() {
		if k != but && (r.loaded[k] || !m.onRequest()) {
			all = append(all, k)
		}
	}
	return all
}

// expect sets the plan of the engine that is to replace a member's; nil: none is.
func (r *residences) expect(i int, next *plan.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if next == nil {
		delete(r.next, i)
	} else {
		r.next[i] = next
	}
}

// makeWay unloads idle models until an engine of next fits in place of a member's. It does not wait.
func (r *residences) makeWay(ctx context.Context, i int, next *plan.Plan) error {
	r.expect(i, next)
	for {
		r.mu.Lock()
		ok := r.fits(append(r.inMemory(i), i), r.next)
		r.mu.Unlock()
		if ok {
			return nil
		}
		if !r.unloadOne(ctx, i) {
			r.expect(i, nil)
			return fmt.Errorf("the new engine does not fit beside the models that are loaded on request and have requests: %s; it is tried again with the next change, or with SIGHUP", r.names(i))
		}
	}
}

// names lists the models on request that are loaded, but one.
func (r *residences) names(but int) string {
	members := r.members()
	var in []string
	for _, k := range r.list(but) {
		in = append(in, members[k].profileName())
	}
	return strings.Join(in, ", ")
}

// free gives the memory of a member back.
func (r *residences) free(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.loaded, i)
	r.leave(i)
	close(r.left)
	r.left = make(chan struct{})
}

// unloadOne unloads the model that has been idle for the longest time. It returns false if none could be.
func (r *residences) unloadOne(ctx context.Context, but int) bool {
	type candidate struct {
		resident
		since time.Time
	}
	var idle []candidate
	members := r.members()
	for _, k := range r.list(but) {
		if since, ok := members[k].Idle(); ok {
			idle = append(idle, candidate{members[k], since})
		}
	}
	slices.SortStableFunc(idle, func(a, b candidate) int { return a.since.Compare(b.since) })
	for _, c := range idle {
		if c.Unload(ctx) {
			return true
		}
	}
	return false
}

// list returns the loaded members but one.
func (r *residences) list(but int) (out []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.loaded {
		if k != but {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// refuse returns the error of requests whose model cannot be loaded now.
func (r *residences) refuse(i int) error {
	e := chat.Errorf(chat.Unavailable, "", "%s", fmt.Sprintf("The model of profile %s is not in memory, and does not fit beside %s, which have requests. Please try again later.",
		r.members()[i].profileName(), r.names(i)))
	e.RetryAfter = longestWait / 10
	return e
}
