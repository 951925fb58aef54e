package engine

import "time"

// Hooks are called by the loop as things happen; nil ones are skipped. They
// must not block: the loop waits for them.
type Hooks struct {
	// Step is called after every committed step.
	Step func(StepStats)
	// Finished is called once a choice, when it ends.
	Finished func(RequestStats)
	// ITLMissed is called when decoding alone has begun to take longer than the target, with
	// what it takes from one token to the next; again only after it has kept to it.
	ITLMissed func(alone, target time.Duration)
	// NoGraph is called when a step of a device that captures graphs ran without one, for the
	// first time for its reason.
	NoGraph func(reason string, tokens int)
	// Cache is called when the weights are there, with how they came there, and where they
	// were packed and are kept once more when that is done or has failed. Not by the loop.
	Cache func(CacheEvent)
}
