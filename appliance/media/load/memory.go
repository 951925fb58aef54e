package load

import (
	"context"
	"errors"
	"sync"

	"vapp.dev/appliance/chat"
)

// Memory bounds what is loaded at one time by the Loaders of a server, of which one is in use and those before it
// finish their requests: all together take at most Config.Memory of the one in use. Only its images are kept.
type Memory struct {
	mu      sync.Mutex
	most    int64
	taken   int64
	waiting []*waiter // the first one is served first
	used    *Loader
}

// waiter waits for n bytes beside those that its item holds.
type waiter struct {
	n, holds int64
	done     chan error // has room for its answer
}

// Use makes l the Loader in use; nil: there is none.
func (m *Memory) Use(l *Loader) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used == l {
		return
	}
	if m.used != nil {
		m.used.cache.bound(0)
	}
	m.used = l
	if l != nil {
		l.cache.bound(l.c.Cache)
		m.most = l.c.Memory
	}
	m.serve()
}

// serve answers those that wait, as far as there is memory. The caller holds mu.
func (m *Memory) serve() {
	for len(m.waiting) > 0 {
		w := m.waiting[0]
		switch err := m.fits(w.n, w.holds); {
		case err != nil:
			w.done <- err
		case m.taken+w.n > m.most:
			return
		default:
			m.taken += w.n
			w.done <- nil
		}
		m.waiting = m.waiting[1:]
	}
}

// fits returns a *chat.Error if an item that holds some bytes could never have n more.
func (m *Memory) fits(n, holds int64) error {
	if n > m.most-holds {
		return chat.Errorf(chat.Invalid, "messages", "An image needs %d bytes to be loaded, and multimodal.loadMemory is %d.", n+holds, m.most)
	}
	return nil
}

// take waits for n bytes until ctx ends. The error is ctx's or a *chat.Error.
func (m *Memory) take(ctx context.Context, n, holds int64) error {
	w := &waiter{n, holds, make(chan error, 1)}
	m.mu.Lock()
	m.waiting = append(m.waiting, w)
	m.serve()
	m.mu.Unlock()
	select {
	case err := <-w.done:
		return err
	default:
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, o := range m.waiting {
		if o == w {
			m.waiting = append(m.waiting[:i:i], m.waiting[i+1:]...)
			m.serve() // those behind it may fit
			return ctx.Err()
		}
	}
	return <-w.done // answered meanwhile
}

// give gives n bytes back.
func (m *Memory) give(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken -= n
	m.serve()
}

// holding is what one item holds of a memory.
type holding struct {
	m       *Memory
	request context.Context // what is kept is held until its end
	loading context.Context // what is not there by its end is refused
	bytes   int64
}

func (m *Memory) open(request, loading context.Context) *holding {
	return &holding{m, request, loading, 0}
}

// reserve waits for n more bytes. Items wait for each other's, so the time to wait is bounded. The error is a
// *chat.Error.
func (h *holding) reserve(n int64) error {
	err := h.m.take(h.loading, n, h.bytes)
	switch {
	case err == nil:
		h.bytes += n
		return nil
	case errors.As(err, new(*chat.Error)):
		return err
	case h.request.Err() != nil:
		return &chat.Error{Kind: chat.Gone, Message: "The client closed the request.", Cause: h.request.Err()}
	}
	return chat.Errorf(chat.Overloaded, "messages", "Other images take the memory for loading; try again, or raise multimodal.loadMemory.")
}

// keep holds n of the bytes until the request ends.
func (h *holding) keep(n int64) {
	n = min(n, h.bytes)
	h.bytes -= n
	context.AfterFunc(h.request, func() { h.m.give(n) })
}

// close gives back what is not kept.
func (h *holding) close() {
	h.m.give(h.bytes)
	h.bytes = 0
}
