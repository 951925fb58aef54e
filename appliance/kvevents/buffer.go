package kvevents

import "sync"

// buffer keeps the last batches for replay, within limits of number and bytes.
type buffer struct {
	mu          sync.Mutex
	steps, most int // limits
	bytes       int
	list        []kept // oldest first, from first on
	first       int
}

// kept is an encoded batch. Its bytes never change.
type kept struct {
	seq     uint64
	payload []byte
}

func newBuffer(steps, bytes int) *buffer { return &buffer{steps: steps, most: bytes} }

// add keeps a batch, and forgets the oldest ones beyond the limits.
func (b *buffer) add(seq uint64, payload []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, kept{seq, payload})
	b.bytes += len(payload)
	for len(b.list)-b.first > b.steps || b.bytes > b.most {
		b.bytes -= len(b.list[b.first].payload)
		b.list[b.first].payload = nil
		b.first++
	}
	if b.first > len(b.list)/2 {
		b.list = append(b.list[:0], b.list[b.first:]...)
		b.first = 0
	}
}

// from returns the oldest kept batch whose number is at least seq; ok is false if there is none.
func (b *buffer) from(seq uint64) (k kept, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lo, hi := b.first, len(b.list)
	for lo < hi {
		if mid := (lo + hi) / 2; b.list[mid].seq < seq {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(b.list) {
		return kept{}, false
	}
	return b.list[lo], true
}
