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

// StepStats is what one step did.
type StepStats struct {
	PromptTokens     int // prompt tokens computed
	GenerationTokens int
	Preempted        int // sequences preempted for lack of pages
	SwappedOut       int // of these, sequences whose pages went to swap space
	SwappedIn        int // sequences whose pages came back
	// FirstTokens are arrival → first token, of choices that got theirs; BetweenTokens the
	// times since the choice's previous step with a token. Both are valid during the call.
	FirstTokens, BetweenTokens []time.Duration
	// CacheQueries and CacheHits count prompt tokens of newly scheduled prompts.
	CacheQueries, CacheHits int
	// Drafts is how many sequences had proposed tokens verified, DraftTokens how many
	// these were, AcceptedTokens those of them that held. AcceptedPerPosition counts
	// sequences by the position of an accepted token; it is valid during the call.
	Drafts, DraftTokens, AcceptedTokens int
	AcceptedPerPosition                 []int
	// MaskTimes are what the masks of tokens drawn under a grammar took to make, beside
	// the loop; GrammarTime is the loop's own: following grammars, waiting for masks.
	MaskTimes   []time.Duration
	GrammarTime time.Duration
	Duration    time.Duration // launch → committed
	// Graph is how the step ran on a device that captures graphs, in vLLM's words: "FULL",
	// "PIECEWISE", or "NONE" and NoGraph why; "" on one that captures none.
	Graph, NoGraph string
	// BeyondTarget says that streams waited longer for this step than Options.ITLTarget.
	BeyondTarget bool
}

// RequestStats is the life of one choice.
type RequestStats struct {
	ID                              string
	Finish                          Finish
	PromptTokens, CachedTokens      int
	GenerationTokens                int
	MaxTokens                       int
	Pooled                          bool // it asked for no tokens
	N                               int  // choices of its request
	Choice                          int  // 0 is the first: counts the request once
	Arrival, Queued, Scheduled      time.Time
	FirstToken, LastToken, Finished time.Time // zero where it never came so far
}

// Stats is a snapshot, cheap to take and never older than the last step.
type Stats struct {
	Running, Waiting int
	KVPages          int     // pages the arena can hold (first class)
	KVUsed           float64 // share of pages in use, 0..1
	KVTokens         int64   // tokens of running sequences whose KV it holds
	KVCached         int     // free pages that still hold a cached prefix
	Swapped          int     // of Waiting, those whose pages are in swap space
	SwapUsed         float64 // share of swap space in use, 0..1
	Preemptions      int64
	Steps            int64
}
