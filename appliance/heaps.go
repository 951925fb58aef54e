package appliance

import (
	"runtime/debug"
	"slices"
	"sync"

	"vapp.dev/appliance/plan"
)

// heaps is the limit of the Go heap of several servers.
type heaps struct {
	mu      sync.Mutex
	of      []int64 // by member
	largest int64   // body, in bytes
	apply   func(int64) int64
}

func newHeaps(members int, largest int64) *heaps {
	return &heaps{of: make([]int64, members), largest: largest, apply: debug.SetMemoryLimit}
}

// set changes the limit of one server.
func (h *heaps) set(member int, bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of[member] = bytes
	h.apply(plan.HeapTogether(slices.Clone(h.of), h.largest))
}
