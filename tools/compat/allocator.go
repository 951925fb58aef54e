package compat

import (
	"cmp"
	"slices"
)

// Sizes of the CUDA caching allocator, bytes.
const (
	granule      = 512      // tensor sizes are rounded up to this
	smallTensor  = 1 << 20  // tensors up to this size use the small pool
	smallSegment = 2 << 20  // a segment of the small pool
	largeTensor  = 10 << 20 // smaller tensors of the large pool share a segment
	largeSegment = 20 << 20 // a shared segment of the large pool
	ownSegment   = 2 << 20  // a segment for a single tensor is rounded up to this
	splitMargin  = 1 << 20  // the large pool does not split off a remainder up to this
	maxTensor    = 1 << 44  // larger tensors are errors of a config
	maxResident  = 1 << 50  // larger models too
	maxElements  = 1 << 46  // product of a shape
	maxTensors   = 1 << 18  // tensors of one model
)

// block is a part of a segment, allocated or free.
type block struct {
	addr, size int64
	asked      int64 // bytes of the tensor
	free       bool
	large      bool
	prev, next *block // neighbours in the segment
}

// allocator simulates the CUDA caching allocator: memory-planning section 2.1. A new segment has a
// higher address than all others.
type allocator struct {
	small, large []*block // free blocks by size and address
	top          int64    // address of the next segment
	allocated    int64    // bytes of allocated blocks, which logs report
}

func bySize(a, b *block) int {
	return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.addr, b.addr))
}

func (a *allocator) pool(large bool) *[]*block {
	if large {
		return &a.large
	}
	return &a.small
}

// alloc allocates a block for a tensor of n bytes: the smallest free block that is large enough,
// the lowest address among equal sizes, else a block of a new segment.
func (a *allocator) alloc(n int64) *block {
	asked := n
	n = max(roundUp(n, granule), granule)
	large := n > smallTensor
	b := a.take(n, large)
	if b == nil {
		b = &block{addr: a.top, size: segmentOf(n), large: large}
		a.top += b.size
	}
	rest := b.size - n
	if large && rest > splitMargin || !large && rest >= granule {
		tail := &block{addr: b.addr + n, size: rest, free: true, large: large, prev: b, next: b.next}
		if b.next != nil {
			b.next.prev = tail
		}
		b.next, b.size = tail, n
		a.put(tail)
	}
	b.free, b.asked = false, asked
	a.allocated += b.size
	return b
}

func segmentOf(n int64) int64 {
	switch {
	case n <= smallTensor:
		return smallSegment
	case n < largeTensor:
		return largeSegment
	}
	return roundUp(n, ownSegment)
}

// take removes the best fit from the pool and returns it, or nil.
func (a *allocator) take(n int64, large bool) *block {
	p := a.pool(large)
	i, _ := slices.BinarySearchFunc(*p, &block{size: n, addr: -1}, bySize)
	if i == len(*p) {
		return nil
	}
	b := (*p)[i]
	*p = slices.Delete(*p, i, i+1)
	return b
}

func (a *allocator) put(b *block) {
	p := a.pool(b.large)
	i, _ := slices.BinarySearchFunc(*p, b, bySize)
	*p = slices.Insert(*p, i, b)
}

func (a *allocator) remove(b *block) {
	p := a.pool(b.large)
	i, _ := slices.BinarySearchFunc(*p, b, bySize)
	*p = slices.Delete(*p, i, i+1)
}

// release frees blocks and merges each with its free neighbours.
func (a *allocator) release(blocks ...*block) {
	for _, b := range blocks {
		a.allocated -= b.size
		b.free = true
		if n := b.next; n != nil && n.free {
			a.remove(n)
			a.join(b, n)
		}
		if p := b.prev; p != nil && p.free {
			a.remove(p)
			a.join(p, b)
			b = p
		}
		a.put(b)
	}
}

func (a *allocator) join(lower, upper *block) {
	lower.size += upper.size
	lower.next = upper.next
	if upper.next != nil {
		upper.next.prev = lower
	}
}

// trim releases the segments that are entirely free.
func (a *allocator) trim() {
	whole := func(b *block) bool { return b.prev == nil && b.next == nil }
	a.small = slices.DeleteFunc(a.small, whole)
	a.large = slices.DeleteFunc(a.large, whole)
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

func ceilDiv(n, by int64) int64 { return (n + by - 1) / by }
