package engine

import (
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/sched"
	"vapp.dev/engine/speculate"
	"vapp.dev/kernels"
)

// Options are the decisions of a plan about an engine.
type Options struct {
	MaxModelLen         int // tokens, prompt and output
	MaxNumSeqs          int
	MaxNumBatchedTokens int
	MaxQueue            int // most waiting requests; 0: no limit
	BlockSize           int // tokens of a KV page
	KVFormat            kernels.Format
	KVBytes             int64 // size of the KV arena: whole slabs
	SwapBytes           int64 // host memory for the pages of preempted sequences, rounded down to whole slabs
	PrefixCaching       bool
	ChunkedPrefill      bool
	Overlap             bool // launch step n+1 before step n is committed
	Drafts              int  // proposed tokens that a step verifies for each sequence; needs Overlap off
	// Lookup proposes tokens by n-gram lookup. The zero value leaves proposals to the model's
	// own head or draft model (models.Build.Draft).
	Lookup speculate.NGram
	// EveryRow gives a step of a pooling model one output row for each token. Without it
	// there is one for each sequence.
	EveryRow bool
	Items    ItemOptions
	Policy   sched.Policy
	// ITLTarget is the target for the time between two tokens of a stream while prompts are
	// prefilled in the same steps; 0: none. It needs ChunkedPrefill.
	ITLTarget time.Duration
	// Reduce is the format in which values travel that ranks sum: F32 or BF16; Invalid: there is one rank.
	Reduce  kernels.Format
	Backend backend.Settings
}

// The limits of a request that size the step buffers.
const (
	MaxLogprobs = 20   // most top logprobs a request may ask for, vLLM's default
	MaxBias     = 1024 // most logit edits of a row
)

// rows returns how many rows of a step are sampled or, by a pooling model, given to the host.
func (o Options) rows() int {
	if o.EveryRow {
		return max(o.MaxNumSeqs, o.MaxNumBatchedTokens)
	}
	return o.MaxNumSeqs * (1 + o.Drafts)
}

// schedOptions returns the scheduler's part of the options for an account.
func schedOptions(o Options, a *Account) sched.Options {
	lag := 0
	if o.Overlap {
		lag = 1
	}
	return sched.Options{
		MaxModelLen: o.MaxModelLen, MaxNumSeqs: o.MaxNumSeqs, MaxNumBatchedTokens: o.MaxNumBatchedTokens,
		MaxSamples: o.rows(), Lag: lag, ChunkedPrefill: o.ChunkedPrefill, Policy: o.Policy,
		Verify: o.Drafts, Lookup: o.Lookup, Drafts: a.Reservation.Step.Drafts,
		Encoder: sched.Encoder{Rows: a.Items.Rows, Budget: a.Items.Budget, Whole: a.Items.Rows > 0 && a.wholeItems},
	}
}
