package engine

import "time"

// WithClock returns c with another clock for the times of steps.
func (c Config) WithClock(now func() time.Time) Config {
	c.now = now
	return c
}

// Invariants reports whether the loop verifies its state after every step.
const Invariants = invariants
