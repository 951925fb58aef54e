package sched

import (
	"fmt"

	"vapp.dev/engine/speculate"
)

// Options are the limits of sequences and steps.
type Options struct {
	MaxModelLen         int // tokens of a sequence, prompt and output
	MaxNumSeqs          int // sequences that run at once
	MaxNumBatchedTokens int // tokens of a step
	MaxSamples          int // sampled rows of a step
	// Lag is how many steps may be uncommitted when Next is called: 0, 1 for the overlapped loop, or, if Staged,
	// the number of pipeline stages less one.
	Lag int
	// Staged says that the next step cannot refer to a token in flight: the first pipeline stage does not
	// have it. A sequence waits for its token, and each step takes its share of the sequences that decode, so
	// that the steps in flight share them.
	Staged bool
	// ChunkedPrefill lets a prompt be computed in several steps. Without it a prompt waits
	// for a step that takes all of it. The exception is a prompt whose logprobs need more
	// sampled rows than a step has: it is still cut.
	ChunkedPrefill bool
	Policy         Policy
	// Verify is how many proposed tokens a step may verify for each sequence; it needs lag 0.
	// Proposals come from Lookup in the sequence's own tokens, or from the device, which
	// proposes Drafts tokens after each step (Result.Drafts). For the latter the last row of
	// every sequence in a step is sampled.
	Verify int
	Lookup speculate.NGram
	Drafts int
	// Encoder limits the items of prompts; zero: they have none.
	Encoder Encoder
}

// OptionError reports an invalid option.
type OptionError struct {
	Option string
	Value  int
	Want   string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("scheduler: %s is %d, want %s", e.Option, e.Value, e.Want)
}

// Validate checks the options. The error is an *OptionError, or that of Lookup.Validate.
func (o Options) Validate() error {
	switch {
	case o.MaxModelLen < 2:
		return &OptionError{"maxModelLen", o.MaxModelLen, "at least 2: a prompt token and an output token"}
	case o.MaxNumSeqs < 1:
		return &OptionError{"maxNumSeqs", o.MaxNumSeqs, "at least 1"}
	case o.MaxNumBatchedTokens < 1:
		return &OptionError{"maxNumBatchedTokens", o.MaxNumBatchedTokens, "at least 1"}
	case o.MaxSamples < 1:
		return &OptionError{"sampled rows of a step", o.MaxSamples, "at least 1"}
	case o.Lag < 0 || o.Lag > 1 && !o.Staged:
		return &OptionError{"lag", o.Lag, "0 or 1, but in a pipeline"}
	case !o.ChunkedPrefill && o.MaxNumBatchedTokens < o.MaxModelLen:
		return &OptionError{"maxNumBatchedTokens", o.MaxNumBatchedTokens,
			fmt.Sprintf("at least maxModelLen (%d) without chunkedPrefill", o.MaxModelLen)}
	case o.Verify < 0 || o.Verify > 0 && o.Lag != 0:
		return &OptionError{"lag", o.Lag, "0 where proposed tokens are verified: the next step needs to know which were accepted"}
	case o.Drafts < 0 || o.Drafts > o.Verify:
		return &OptionError{"drafted tokens", o.Drafts, fmt.Sprintf("0 to %d, which are verified", o.Verify)}
	case (o.Verify > 0) != (o.Drafts > 0 || o.Lookup != speculate.NGram{}) || o.Drafts > 0 && o.Lookup != (speculate.NGram{}):
		return &OptionError{"verified tokens", o.Verify, "more than 0 if and only if exactly one of Lookup and Drafts is set"}
	case o.Encoder.Rows < 0 || o.Encoder.Rows > 0 && o.Encoder.Budget < 1:
		return &OptionError{"patches that a step encodes", o.Encoder.Budget, "at least 1"}
	case o.Policy > Priority:
		return &OptionError{"policy", int(o.Policy), "fcfs or priority"}
	}
	return o.Lookup.Validate()
}

// running returns how many sequences may run: each needs one token and one sampled row of every
// step.
func (o Options) running() int { return min(o.MaxNumSeqs, o.MaxNumBatchedTokens, o.MaxSamples) }
