package engine

import (
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/sched"
	"vapp.dev/engine/speculate"
	"vapp.dev/kernels"
)

// Options is everything that a plan decides about an engine.
type Options struct {
	MaxModelLen         int // tokens, prompt and output
	MaxNumSeqs          int
	MaxNumBatchedTokens int
	MaxQueue            int // waiting requests at most; 0: no bound
	BlockSize           int // tokens a KV page holds
	KVFormat            kernels.Format
	KVBytes             int64 // of the KV arena: whole slabs
	SwapBytes           int64 // on the host, for the pages of preempted sequences: what holds whole slabs is used
	PrefixCaching       bool
	ChunkedPrefill      bool
	Overlap             bool // launch step n+1 before step n is committed
	Drafts              int  // proposed tokens that a step verifies for each sequence; without Overlap
	// Lookup is where proposals come from if not from the model's own head
	// (models.Build.Draft).
	Lookup speculate.NGram
	// EveryRow lets a step of a model that pools give a row for each of its tokens; without
	// it, one for each sequence.
	EveryRow bool
	Policy   sched.Policy
	// ITLTarget bounds the time between two tokens of a stream while prompts are computed
	// beside it, with ChunkedPrefill; 0: nothing does.
	ITLTarget time.Duration
	Backend   backend.Settings
}

// Limits of a request that the step buffers are sized by.
const (
	MaxLogprobs = 20   // top logprobs a request may ask for, as vLLM's default
	MaxBias     = 1024 // logit edits a row may carry
)

// rows is how many rows of a step are sampled, or emitted.
func (o Options) rows() int {
	if o.EveryRow {
		return max(o.MaxNumSeqs, o.MaxNumBatchedTokens)
	}
	return o.MaxNumSeqs * (1 + o.Drafts)
}

// schedOptions are the scheduler's part of the options, where the device proposes
// that many tokens.
func schedOptions(o Options, drafts int) sched.Options {
	lag := 0
	if o.Overlap {
		lag = 1
	}
	return sched.Options{
		MaxModelLen: o.MaxModelLen, MaxNumSeqs: o.MaxNumSeqs, MaxNumBatchedTokens: o.MaxNumBatchedTokens,
		MaxSamples: o.rows(), Lag: lag, ChunkedPrefill: o.ChunkedPrefill, Policy: o.Policy,
		Verify: o.Drafts, Lookup: o.Lookup, Drafts: drafts,
	}
}
