// Package budget bounds the memory of bodies that are read at the same time: what does not fit
// waits, first come first served, and slow bodies are ended while others wait. It must not know
// HTTP or what a body holds. Start reading at Budget.
package budget

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Budget limits the memory of request bodies. Requests that do not fit wait, first
// come first served. It is safe for concurrent use.
type Budget struct {
	mu      sync.Mutex
	limit   int64
	used    int64
	queue   []*claim
	readers map[*Reading]struct{} // bodies being read
}

// claim is a request that waits for n bytes.
type claim struct {
	n       int64
	granted chan struct{}
}

// New returns a budget of that many bytes.
func New(limit int64) *Budget {
	return &Budget{limit: limit, readers: map[*Reading]struct{}{}}
}

// ErrShort is returned by Take if the bytes did not become free in time.
var ErrShort = errors.New("the budget of request bodies is used up")

// Limits of waiting for the budget.
const (
	longestWait = 10 * time.Second // then the request is refused
	slowAfter   = time.Second      // a younger body is never slow
	slowRest    = 5 * time.Second  // a body is slow if its rest takes longer at its rate so far
)

// Limit returns the bytes of the budget.
func (b *Budget) Limit() int64 { return b.limit }

// Usage returns the reserved bytes, and how many bodies are read and how many claims wait.
func (b *Budget) Usage() (used int64, reading, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, len(b.readers), len(b.queue)
}

// Take reserves n bytes, which must not exceed the limit. While it waits, it stops
// slow bodies.
func (b *Budget) Take(ctx context.Context, n int64) error {
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
			b.EndSlow(now)
		case <-ctx.Done():
			if b.withdraw(c) {
				return ErrShort
			}
			return nil // granted at the same time
		}
	}
}

// claim reserves n bytes and returns nil, or queues a claim for them.
func (b *Budget) claim(n int64) *claim {
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
func (b *Budget) withdraw(c *claim) bool {
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

// Give releases n bytes.
func (b *Budget) Give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.grant()
}

// Idle reports whether nothing is reserved.
func (b *Budget) Idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used == 0
}

// grant grants claims from the head of the queue while they fit.
func (b *Budget) grant() {
	for len(b.queue) > 0 && b.used+b.queue[0].n <= b.limit {
		c := b.queue[0]
		b.queue = b.queue[1:]
		b.used += c.n
		close(c.granted)
	}
}

// Reading is a body that is being read.
type Reading struct {
	began time.Time // when the budget was granted
	held  int64     // bytes reserved
	rest  int64     // bytes missing at began
	stop  func()    // interrupts the read

	mu    sync.Mutex
	got   int64
	ended bool
}

// NewReading returns a body whose bytes were granted now: held are reserved, rest are missing.
// stop interrupts its read.
func NewReading(held, rest int64, stop func()) *Reading {
	return &Reading{began: time.Now(), held: held, rest: rest, stop: stop}
}

// Add counts n bytes as read.
func (r *Reading) Add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got += int64(n)
}

// end stops the body.
func (r *Reading) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.stop()
}

// Ended reports whether the body was stopped.
func (r *Reading) Ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// rate returns the bytes per second since the budget was granted. slow is true when
// the rest takes longer than slowRest at this rate.
func (r *Reading) rate(now time.Time) (perSecond float64, slow bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	age := now.Sub(r.began)
	if age < slowAfter || r.ended {
		return 0, false
	}
	perSecond = float64(r.got) / age.Seconds()
	return perSecond, float64(r.rest-r.got) > perSecond*slowRest.Seconds()
}

// Follow adds a body to those that EndSlow may stop; Leave removes it.
func (b *Budget) Follow(r *Reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readers[r] = struct{}{}
}

// Leave removes a body that was followed.
func (b *Budget) Leave(r *Reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.readers, r)
}

// EndSlow stops slow bodies, the slowest first, until the waiting claims fit.
func (b *Budget) EndSlow(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	short := b.used - b.limit
	for _, c := range b.queue {
		short += c.n
	}
	type slow struct {
		*Reading
		rate float64
	}
	var list []slow
	for r := range b.readers {
		switch rate, is := r.rate(now); {
		case r.Ended(): // it will release its bytes
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
