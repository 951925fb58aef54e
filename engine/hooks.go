package engine

import "time"

// Hooks are callbacks of the loop. A nil hook is skipped. Hooks must not block, since the loop
// waits for them.
type Hooks struct {
	// Step is called after every committed step.
	Step func(StepStats)
	// Finished is called once for each choice, when it ends.
	Finished func(RequestStats)
	// ITLMissed is called when decoding alone starts to exceed the target. alone is its
	// predicted time between two tokens. It is called again only after decoding has met the
	// target in between.
	ITLMissed func(alone, target time.Duration)
	// NoGraph is called for the first step without a graph for each reason, on a device that
	// captures graphs.
	NoGraph func(reason string, tokens int)
	// Cache is called when the weights are loaded. If they are then written to their file, it
	// is called a second time when that has succeeded or failed. Other goroutines than the
	// loop call it.
	Cache func(CacheEvent)
}
