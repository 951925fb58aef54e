package appliance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/plan"
)

// stay is a member of a test: it takes size of the memory while it is loaded.
type stay struct {
	r     *residences
	index int
	name  string
	size  int
	fixed bool // loaded at start

	mu   sync.Mutex
	busy bool
	used time.Time
}

func (s *stay) Idle() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, !s.busy
}

func (s *stay) Unload(context.Context) bool {
	if _, idle := s.Idle(); !idle {
		return false
	}
	s.r.free(s.index)
	return true
}

func (s *stay) profileName() string { return s.name }
func (s *stay) onRequest() bool     { return !s.fixed }

func (s *stay) set(busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = busy
}

// more is what an engine takes beyond the one that it replaces.
const more = 1

// house has room for total. tick lets takers look again.
func house(total int, sizes ...int) (r *residences, all []*stay, tick chan time.Time) {
	tick = make(chan time.Time)
	r = &residences{
		loaded: map[int]bool{}, next: map[int]*plan.Plan{}, left: make(chan struct{}), leave: func(int) {}, enter: func(int) {},
		tick:  func() (<-chan time.Time, func()) { return tick, func() {} },
		limit: context.WithCancel,
	}
	for i, n := range sizes {
		all = append(all, &stay{r: r, index: i, name: fmt.Sprintf("m%d", i), size: n, used: time.Unix(int64(i), 0)})
	}
	r.members = func() (out []resident) {
		for _, s := range all {
			out = append(out, s)
		}
		return out
	}
	r.fits = func(loaded []int, next map[int]*plan.Plan) bool {
		sum := more * len(next)
		for _, i := range loaded {
			sum += all[i].size
		}
		return sum <= total
	}
	return r, all, tick
}

// TestResidences: the models that have been idle for the longest time leave first, as many as are needed, and one that is
// loaded at start never does.
func TestResidences(t *testing.T) {
	r, all, _ := house(10, 3, 3, 3, 6)
	all[0].fixed = true
	ctx := t.Context()
	take := func(i int, want string) {
		t.Helper()
		if err := r.take(ctx, i); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(r.list(-1)); got != want {
			t.Errorf("after m%d: loaded %s, want %s", i, got, want)
		}
	}
	take(1, "[1]")
	take(2, "[1 2]")
	take(3, "[3]") // 3 + 6 of 10: both leave
	take(2, "[2]")
	take(1, "[1 2]")
	all[1].used = time.Unix(9, 0)
	all[0].size = 4 // now one of them has to leave
	all[3].size = 3
	take(3, "[1 3]")
}

// TestResidencesWait: a model waits for those in use, until one is idle or the time is up.
func TestResidencesWait(t *testing.T) {
	r, all, tick := house(1, 1, 1)
	if err := r.take(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	all[0].set(true)
	late := errors.New("late")
	ctx, stop := context.WithCancelCause(t.Context())
	got := make(chan error)
	go func() { got <- r.take(ctx, 1) }()
	tick <- time.Time{} // it waits, and looks again
	tick <- time.Time{}
	stop(late)
	err := <-got
	var e *chat.Error
	if !errors.As(err, &e) || e.Kind != chat.Unavailable || e.RetryAfter <= 0 || !strings.Contains(err.Error(), "m1") || !strings.Contains(err.Error(), "m0") {
		t.Errorf("%v", err)
	}
	go func() { got <- r.take(t.Context(), 1) }()
	tick <- time.Time{}
	all[0].set(false)
	tick <- time.Time{}
	if err := <-got; err != nil || fmt.Sprint(r.list(-1)) != "[1]" {
		t.Errorf("%v, loaded %v", err, r.list(-1))
	}
}

// TestResidencesAtOnce: many takers at once never exceed the memory, and all get their turn.
func TestResidencesAtOnce(t *testing.T) {
	r, all, tick := house(2, 1, 1, 1, 1)
	over := make(chan struct{})
	go func() {
		for {
			select {
			case tick <- time.Time{}:
			case <-over:
				return
			}
		}
	}()
	var group sync.WaitGroup
	for i := range all {
		group.Go(func() {
			for range 50 {
				if err := r.take(t.Context(), i); err != nil {
					t.Error(err)
				}
				if n := len(r.list(-1)); n > 2 {
					t.Errorf("%d are loaded", n)
				}
			}
		})
	}
	group.Wait()
	close(over)
}

// TestResidencesMakeWay: a larger engine of a model that is loaded at start unloads idle models, and none is loaded that does
// not fit beside it.
func TestResidencesMakeWay(t *testing.T) {
	r, all, tick := house(3, 1, 1, 1)
	all[0].fixed = true
	for _, i := range []int{1, 2} {
		if err := r.take(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	all[2].set(true)
	if err := r.makeWay(t.Context(), 0, new(plan.Plan)); err != nil || fmt.Sprint(r.list(-1)) != "[2]" {
		t.Fatalf("%v, loaded %v", err, r.list(-1))
	}
	ctx, stop := context.WithCancel(t.Context())
	got := make(chan error)
	go func() { got <- r.take(ctx, 1) }()
	tick <- time.Time{}
	tick <- time.Time{}
	stop()
	if err := <-got; err == nil {
		t.Error("a model is loaded that does not fit beside the new engine")
	}
	r.expect(0, nil)
	if err := r.take(t.Context(), 1); err != nil {
		t.Error(err)
	}
	all[1].set(true)
	if err := r.makeWay(t.Context(), 0, new(plan.Plan)); err == nil || !strings.Contains(err.Error(), "m1, m2") || len(r.next) != 0 {
		t.Errorf("%v, %v", err, r.next)
	}
}
