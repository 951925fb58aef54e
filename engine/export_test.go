package engine

import "time"

// WithClock is c with another clock for the times of steps.
func (c Config) WithClock(now func() time.Time) Config {
	c.now = now
	return c
}

// Invariants says that the loop verifies its books after every step.
const Invariants = invariants
