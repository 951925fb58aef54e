package sched

import "fmt"

// Options bound what a step may hold.
type Options struct {
	MaxModelLen         int // tokens of a sequence, prompt and output
	MaxNumSeqs          int // sequences that run at once
	MaxNumBatchedTokens int // tokens of a step
	MaxSamples          int // sampled rows of a step
	// Lag is how many steps may be uncommitted when Next is called: 0, or 1 for
	// the overlapped loop.
	Lag int
	// ChunkedPrefill lets a prompt be computed in several steps. Without it a
	// prompt waits for a step that takes all of it; only one whose prompt
	// logprobs need more sampled rows than a step has is still cut.
	ChunkedPrefill bool
	Policy         Policy
}

// OptionError says which option is wrong.
type OptionError struct {
	Option string
	Value  int
	Want   string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("scheduler: %s is %d, want %s", e.Option, e.Value, e.Want)
}

// Validate says what is wrong with the options, as an *OptionError.
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
	case o.Lag < 0 || o.Lag > 1:
		return &OptionError{"lag", o.Lag, "0 or 1"}
	case !o.ChunkedPrefill && o.MaxNumBatchedTokens < o.MaxModelLen:
		return &OptionError{"maxNumBatchedTokens", o.MaxNumBatchedTokens,
			fmt.Sprintf("at least maxModelLen (%d) without chunkedPrefill", o.MaxModelLen)}
	case o.Policy > Priority:
		return &OptionError{"policy", int(o.Policy), "fcfs or priority"}
	}
	return nil
}

// running is how many sequences may run: each needs a token and a sampled row
// of every step.
func (o Options) running() int { return min(o.MaxNumSeqs, o.MaxNumBatchedTokens, o.MaxSamples) }
