package engine

import (
	"errors"
	"sync"
	"time"
)

// message is a request to the loop from another goroutine. One of add, cancel and do is set.
type message struct {
	add    []*choice
	cancel *choice
	finish Finish      // of cancel
	do     func(*loop) // called between two steps
}

// inbox passes messages from any goroutine to the loop. There is no other way into the loop.
type inbox struct {
	mu     sync.Mutex
	list   []message
	closed error         // why additions are refused; nil: they are accepted
	signal chan struct{} // capacity 1
}

func newInbox() *inbox { return &inbox{signal: make(chan struct{}, 1)} }

// put appends a message and wakes the loop. Once the inbox is closed, it refuses additions.
func (b *inbox) put(m message) error {
	b.mu.Lock()
	if b.closed != nil && m.add != nil {
		b.mu.Unlock()
		return b.closed
	}
	b.list = append(b.list, m)
	b.mu.Unlock()
	select {
	case b.signal <- struct{}{}:
	default:
	}
	return nil
}

// take empties the inbox and returns its messages in into's storage, which the loop reuses.
func (b *inbox) take(into []message) []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	into = append(into[:0], b.list...)
	clear(b.list)
	b.list = b.list[:0]
	return into
}

// shut refuses further additions with why. The first reason is kept, but ErrDead replaces it.
func (b *inbox) shut(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil || errors.Is(why, ErrDead) {
		b.closed = why
	}
}

// reason returns why additions are refused, nil if they are accepted.
func (b *inbox) reason() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// wait blocks until a message was put or until the given time; a zero time means no limit.
func (b *inbox) wait(until time.Time) {
	if until.IsZero() {
		<-b.signal
		return
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-b.signal:
	case <-t.C:
	}
}
