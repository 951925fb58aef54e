package appliance

import (
	"context"
	"slices"
	"sync"
	"time"

	"vapp.dev/appliance/chat"
)

// door lets requests in to the engine that serves. While there is none, it lets a bounded number of
// requests wait, first come first served, or refuses them.
type door struct {
	mu      sync.Mutex
	serving *served // nil: none
	waiting []chan *served
	most    int            // requests that may wait
	refuse  func() error   // why no request may wait; nil: they may
	failed  error          // of the last load; waiting requests get it
	until   time.Time      // when serving is expected again; zero: unknown
	knock   func()         // called when a request starts to wait; may be nil
	counts  map[string]int // of waiting requests, by what became of them
	now     func() time.Time
}

// What became of requests that waited for an engine.
const (
	letIn    = "served"
	tooMany  = "refused"
	wentAway = "gone"
)

func newDoor(refuse func() error) *door {
	return &door{refuse: refuse, counts: map[string]int{}, now: time.Now}
}

// enter returns the served that answers a request, which calls leave when it is done with it.
func (d *door) enter(ctx context.Context) (*served, error) {
	d.mu.Lock()
	if s := d.serving; s != nil {
		s.inside++
		d.mu.Unlock()
		return s, nil
	}
	if d.refuse != nil {
		err := d.refuse()
		d.mu.Unlock()
		return nil, err
	}
	if len(d.waiting) >= d.most {
		d.counts[tooMany]++
		err := chat.Errorf(chat.Unavailable, "", "The model is being replaced and %d requests wait for it already. Please try again later.", len(d.waiting))
		err.RetryAfter = d.untilServing()
		d.mu.Unlock()
		return nil, err
	}
	turn := make(chan *served, 1)
	d.waiting = append(d.waiting, turn)
	knock := d.knock
	d.mu.Unlock()
	if knock != nil {
		knock()
	}
	select {
	case s := <-turn:
		return d.admitted(s)
	case <-ctx.Done():
	}
	d.mu.Lock()
	i := slices.Index(d.waiting, turn)
	if i >= 0 {
		d.waiting = slices.Delete(d.waiting, i, i+1)
	}
	d.counts[wentAway]++
	d.mu.Unlock()
	if i < 0 {
		if s := <-turn; s != nil {
			d.leave(s)
		}
	}
	return nil, context.Cause(ctx)
}

// admitted returns what a waiting request got: s, or why there is none.
func (d *door) admitted(s *served) (*served, error) {
	if s != nil {
		return s, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse != nil {
		return nil, d.refuse()
	}
	return nil, d.failed
}

// untilServing returns the expected time until requests are served.
func (d *door) untilServing() time.Duration { return max(time.Second, d.until.Sub(d.now())) }

// leave ends a request's stay.
func (d *door) leave(s *served) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.inside--
	if s.inside == 0 {
		s.quiet = d.now()
		if s.empty != nil {
			close(s.empty)
			s.empty = nil
		}
	}
}

// open lets the waiting requests and all later ones in to s. first is called before, while no request is let
// in or refused; it makes the settings that belong to s effective.
func (d *door) open(s *served, first func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first()
	d.serving, d.refuse, d.knock = s, nil, nil
	s.quiet = d.now()
	for _, turn := range d.waiting {
		s.inside++
		turn <- s
		d.counts[letIn]++
	}
	d.waiting = nil
}

// hold lets the requests that arrive from now on wait: at most that many, until about that time. knock is called
// when one starts to wait; it may be nil.
func (d *door) hold(most int, until time.Time, knock func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.serving, d.refuse, d.most, d.until, d.knock = nil, nil, most, until, knock
}

// holdIfEmpty is hold unless a request is inside s. It reports whether it held.
func (d *door) holdIfEmpty(s *served, most int, knock func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.serving != s || s.inside > 0 {
		return false
	}
	d.serving, d.refuse, d.most, d.until, d.knock = nil, nil, most, time.Time{}, knock
	return true
}

// fail gives the waiting requests an error. Later ones wait.
func (d *door) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = err
	d.dismiss()
}

// dismiss sends the waiting requests away.
func (d *door) dismiss() {
	for _, turn := range d.waiting {
		turn <- nil
	}
	d.counts[tooMany] += len(d.waiting)
	d.waiting = nil
}

// close refuses all requests from now on, and those that wait, with the error of why.
func (d *door) close(why func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.serving, d.refuse, d.knock = nil, why, nil
	d.dismiss()
}

// emptied returns a channel that is closed when no request is inside s. No request may enter s any more.
func (d *door) emptied(s *served) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := make(chan struct{})
	switch {
	case s.inside == 0:
		close(c)
	case s.empty != nil:
		return s.empty
	default:
		s.empty = c
	}
	return c
}

// knocked reports whether a request waits for the model to be loaded.
func (d *door) knocked() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.knock != nil && len(d.waiting) > 0
}

// count returns the number of requests inside s.
func (d *door) count(s *served) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.inside
}

// queue returns the number of requests that wait, and copies of the counts.
func (d *door) queue() (waiting int, counts map[string]int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	counts = make(map[string]int, len(d.counts))
	for k, v := range d.counts {
		counts[k] = v
	}
	return len(d.waiting), counts
}

// idle returns since when no request is inside s; ok is false while one is.
func (d *door) idle(s *served) (since time.Time, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.quiet, s.inside == 0
}
