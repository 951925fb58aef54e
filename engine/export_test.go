package engine

import (
	"time"

	"vapp.dev/engine/kv"
)

// WithClock returns c with another clock for the times of steps.
func (c Config) WithClock(now func() time.Time) Config {
	c.now = now
	return c
}

// CachedBlocks returns the blocks of the prefix cache that Hooks.Blocks records, by class. All
// changes up to it have been reported.
func (e *Engine) CachedBlocks() map[int]map[kv.Hash]bool {
	got := make(chan map[int]map[kv.Hash]bool)
	_ = e.in.put(message{do: func(l *loop) {
		l.publish()
		out := map[int]map[kv.Hash]bool{}
		l.pool.Contents(func(class int, h kv.Hash) {
			if out[class] == nil {
				out[class] = map[kv.Hash]bool{}
			}
			out[class][h] = true
		})
		got <- out
	}})
	return <-got
}

// Invariants reports whether the loop verifies its state after every step.
const Invariants = invariants

// Slabs returns the slabs of the KV arena and of swap space that Open uses.
func (c Config) Slabs() (pages, swap int) { return c.slabs() }
