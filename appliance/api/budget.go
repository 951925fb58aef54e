package api

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// budget limits the memory of request bodies. Requests that do not fit wait, first
// come first served.
type budget struct {
	mu      sync.Mutex
	limit   int64
	used    int64
	queue   []*claim
	readers map[*reading]struct{} // bodies being read
}

// claim is a request that waits for n bytes.
type claim struct {
	n       int64
	granted chan struct{}
}

func newBudget(limit int64) *budget {
	return &budget{limit: limit, readers: map[*reading]struct{}{}}
}

var errShort = errors.New("the budget of request bodies is used up")

// Limits of waiting for the budget.
const (
	longestWait = 10 * time.Second // then the request is refused
	slowAfter   = time.Second      // a younger body is never slow
	slowRest    = 5 * time.Second  // a body is slow if its rest takes longer at its rate so far
)

// take reserves n bytes, which must not exceed the limit. While it waits, it stops
// slow bodies.
func (b *budget) take(ctx context.Context, n int64) error {
	c := b.claim(n)
	if c == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, longestWait)
	defer stop()
	tick := time.NewTicker(slowAfter / 4)
	defer tick.Stop()
	for {
		select {
		case <-c.granted:
			return nil
		case now := <-tick.C:
			b.endSlow(now)
		case <-ctx.Done():
			if b.withdraw(c) {
				return errShort
			}
			return nil // granted at the same time
		}
	}
}

// claim reserves n bytes and returns nil, or queues a claim for them.
func (b *budget) claim(n int64) *claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 && b.used+n <= b.limit {
		b.used += n
		return nil
	}
	c := &claim{n, make(chan struct{})}
	b.queue = append(b.queue, c)
	return c
}

// withdraw removes a claim from the queue. It returns false if the claim was granted.
func (b *budget) withdraw(c *claim) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.Index(b.queue, c)
	if at < 0 {
		return false
	}
	b.queue = slices.Delete(b.queue, at, at+1)
	b.grant() // the next claim may be smaller
	return true
}

// give releases n bytes.
func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.grant()
}

// idle reports whether nothing is reserved.
func (b *budget) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used == 0
}

// grant grants claims from the head of the queue while they fit.
func (b *budget) grant() {
	for len(b.queue) > 0 && b.used+b.queue[0].n <= b.limit {
		c := b.queue[0]
		b.queue = b.queue[1:]
		b.used += c.n
		close(c.granted)
	}
}

// reading is a body that is being read.
type reading struct {
	began time.Time // when the budget was granted
	held  int64     // bytes reserved
	rest  int64     // bytes missing at began
	stop  func()    // interrupts the read

	mu    sync.Mutex
	got   int64
	ended bool
}

// add counts n bytes as read.
func (r *reading) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got += int64(n)
}

// end stops the body.
func (r *reading) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.stop()
}

func (r *reading) isEnded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// rate returns the bytes per second since the budget was granted. slow is true when
// the rest takes longer than slowRest at this rate.
func (r *reading) rate(now time.Time) (perSecond float64, slow bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	age := now.Sub(r.began)
	if age < slowAfter || r.ended {
		return 0, false
	}
	perSecond = float64(r.got) / age.Seconds()
	return perSecond, float64(r.rest-r.got) > perSecond*slowRest.Seconds()
}

// follow adds a body to the readers; leave removes it.
func (b *budget) follow(r *reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readers[r] = struct{}{}
}

func (b *budget) leave(r *reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.readers, r)
}

// endSlow stops slow bodies, the slowest first, until the waiting claims fit.
func (b *budget) endSlow(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	short := b.used - b.limit
	for _, c := range b.queue {
		short += c.n
	}
	type slow struct {
		*reading
		rate float64
	}
	var list []slow
	for r := range b.readers {
		switch rate, is := r.rate(now); {
		case r.isEnded(): // it will release its bytes
			short -= r.held
		case is:
			list = append(list, slow{r, rate})
		}
	}
	slices.SortFunc(list, func(x, y slow) int {
		switch {
		case x.rate < y.rate:
			return -1
		case x.rate > y.rate:
			return 1
		}
		return x.began.Compare(y.began)
	})
	for _, r := range list {
		if len(b.queue) == 0 || short <= 0 {
			return
		}
		r.end()
		short -= r.held
	}
}
