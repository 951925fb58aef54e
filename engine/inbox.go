package engine

import (
	"errors"
	"sync"
	"time"
)

// message is what others ask of the loop; one field is set.
type message struct {
	add    []*choice
	cancel *choice
	finish Finish      // of cancel
	do     func(*loop) // runs between two steps
}

// inbox is the one way into the loop.
type inbox struct {
	mu     sync.Mutex
	list   []message
	closed error         // why no more adds are taken
	signal chan struct{} // capacity 1
}

func newInbox() *inbox { return &inbox{signal: make(chan struct{}, 1)} }

// put hands a message over. Additions are refused once the inbox is closed.
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

// take empties the inbox into into, which the loop reuses.
func (b *inbox) take(into []message) []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	into = append(into[:0], b.list...)
	clear(b.list)
	b.list = b.list[:0]
	return into
}

// shut refuses further additions; the first reason stays, unless the engine failed since.
func (b *inbox) shut(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil || errors.Is(why, ErrDead) {
		b.closed = why
	}
}

// reason is why additions are refused, nil while they are not.
func (b *inbox) reason() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// wait blocks until something was put, or until a time; zero: no time.
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
