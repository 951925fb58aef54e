// Package sched decides which tokens run next: admission, chunked prefill,
// decode, preemption. It is pure: no clock, no device, no goroutine.
package sched

import (
	"vapp.dev/engine/kv"
)

// Options bound what a step may hold.
type Options struct {
	MaxModelLen         int // tokens of a sequence, prompt and output
	MaxNumSeqs          int // sequences that run at once
	MaxNumBatchedTokens int // tokens of a step
	MaxSamples          int // sampled rows of a step
	// Lag is how many steps may be uncommitted when Next is called: 0, or 1 for
	// the overlapped loop.
	Lag            int
	ChunkedPrefill bool // a prompt may be computed in several steps
	Policy         Policy
}

// Validate says what is wrong with the options.
func (o Options) Validate() error { return nil }

// Scheduler decides. It is not safe for concurrent use.
type Scheduler struct {
	opts Options
	pool *kv.Pool
}

// New makes a scheduler over a pool. It panics unless o.Validate is nil.
func New(o Options, pool *kv.Pool) *Scheduler { return &Scheduler{opts: o, pool: pool} }

// Add queues a sequence. It refuses with a *NeverFitsError.
func (s *Scheduler) Add(q *Seq) error { return nil }

// Cancel ends a sequence without output; what is in flight for it is dropped
// and its pages are free at once. False: it had ended before.
func (s *Scheduler) Cancel(q *Seq) bool { return false }

// Next decides a step, nil when nothing can run before a Commit or an Add.
func (s *Scheduler) Next() *Step { return nil }

// Commit takes the oldest uncommitted step's result. The outputs are valid
// until the next Commit, in the order of the step's rows.
func (s *Scheduler) Commit(st *Step, r Result) []Output { return nil }

// Counts is how many sequences run and wait.
func (s *Scheduler) Counts() (running, waiting int) { return 0, 0 }

// Idle says that there is nothing to run and nothing in flight.
func (s *Scheduler) Idle() bool { return true }

// SetPolicy changes the order of what waits and runs.
func (s *Scheduler) SetPolicy(p Policy) {}

// NeverFitsError refuses a sequence that could never run to its end.
type NeverFitsError struct {
	Prompt int // tokens
	Output int // max_tokens
	Limit  int // tokens: of the model length, or of what the KV arena holds
	Arena  bool
}

func (e *NeverFitsError) Error() string { return "" }
