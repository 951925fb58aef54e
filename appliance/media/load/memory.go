package load

import (
	"context"

	"golang.org/x/sync/semaphore"

	"vapp.dev/appliance/chat"
)

// memory bounds the bytes of what is loaded at one time.
type memory struct {
	most  int64
	taken *semaphore.Weighted
}

func newMemory(most int64) *memory { return &memory{most, semaphore.NewWeighted(most)} }

// holding is what one item holds of a memory.
type holding struct {
	m       *memory
	request context.Context // what is kept is held until its end
	loading context.Context // what is not there by its end is refused
	bytes   int64
}

func (m *memory) open(request, loading context.Context) *holding {
	return &holding{m, request, loading, 0}
}

// reserve waits for n more bytes. Items wait for each other's, so the time to wait is bounded. The error is a
// *chat.Error.
func (h *holding) reserve(n int64) error {
	if n > h.m.most-h.bytes {
		return chat.Errorf(chat.Invalid, "messages", "An image needs %d bytes to be loaded, and multimodal.loadMemory is %d.", n+h.bytes, h.m.most)
	}
	if err := h.m.taken.Acquire(h.loading, n); err != nil {
		if h.request.Err() != nil {
			return &chat.Error{Kind: chat.Gone, Message: "The client closed the request.", Cause: h.request.Err()}
		}
		return chat.Errorf(chat.Overloaded, "messages", "Other images take the memory for loading; try again, or raise multimodal.loadMemory.")
	}
	h.bytes += n
	return nil
}

// keep holds n of the bytes until the request ends.
func (h *holding) keep(n int64) {
	n = min(n, h.bytes)
	h.bytes -= n
	context.AfterFunc(h.request, func() { h.m.taken.Release(n) })
}

// close gives back what is not kept.
func (h *holding) close() {
	h.m.taken.Release(h.bytes)
	h.bytes = 0
}
