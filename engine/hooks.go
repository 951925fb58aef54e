package engine

import (
	"time"

	"vapp.dev/engine/kv"
)

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
	// Blocks asks for the changes of the prefix cache; nil: they are not recorded.
	Blocks *BlockHook
}

// Turns lets the engine share its device, or the cores, with other engines: it launches steps
// only between Enter and Leave, and ends a turn only when no step runs. One goroutine calls the methods.
type Turns interface {
	// Enter waits for the engine's turn.
	Enter()
	// Wanted reports, between two steps of a turn, whether the engine is to leave.
	Wanted() bool
	// Yield ends the turn and waits for the next one.
	Yield()
	// Leave ends the turn.
	Leave()
}

// BlockHook receives the changes of the prefix cache.
type BlockHook struct {
	Seed string // of kv.Pool.Record
	// Changed is called after a step, or while there is none, with the changes since the last call:
	// kv.Pool.Changes. l is the pool's layout, whose Specs the changes name. The slice is valid during
	// the call, the tokens in it for ever.
	Changed func(l kv.Layout, changes []kv.Change)
}
