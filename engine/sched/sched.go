// Package sched is the scheduler: it decides which tokens of which sequences the next step
// computes, by admission, chunked prefill, decode, speculation and preemption. It must not know
// a clock, a device or a goroutine: the same calls give the same steps. Start reading at
// Scheduler.Next in next.go; design.md explains why it is correct.
package sched

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"vapp.dev/engine/kv"
	"vapp.dev/engine/steptime"
)

// Scheduler schedules the sequences of one model. It is not safe for concurrent use.
type Scheduler struct {
	opts           Options
	pool           *kv.Pool
	swap           *kv.Pool // swap space: pages on the host; nil: none
	running        []*Seq   // in the policy's order
	waiting        []*Seq   // in the policy's order
	flight         []*Step
	spare          []*Step
	out            []Output
	step           *Step          // being built by Next
	moves          []Move         // page moves since the last step
	pageMoves      []kv.Move      // scratch
	proposalTokens int            // tokens of the step that are reserved for proposals
	indexed        int            // tokens in the n-gram indexes of all sequences
	maxIndexed     int            // limit of indexed
	draftPages     bool           // rows take pages for the positions that the device's drafting computes
	stats          Stats          // since the last step
	limiter        PrefillLimiter // nil: only the step's size limits prefill
	stepsPerToken  int            // Work.StepsPerToken of the step; 0: no sequence decodes
	encoded        *kv.EncoderCache
	whole          int      // tokens of the step that decoding sequences leave to a run of items
	count          uint64   // sequences added
	need           []int    // scratch
	noFit          struct { // the last admission that failed, valid while no page was freed
		seq   *Seq
		freed uint64
	}
}

// New returns a scheduler over a page pool. It panics if o.Validate fails.
func New(o Options, pool *kv.Pool) *Scheduler {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	l := pool.Layout()
	s := &Scheduler{opts: o, pool: pool, need: make([]int, len(l.Specs)), maxIndexed: int(l.Tokens(pool.Slabs())), draftPages: o.Drafts > 2}
	for _, c := range l.Specs {
		s.draftPages = s.draftPages && c.Kind != kv.Window && c.Kind != kv.Chunk
	}
	if o.Encoder.Rows > 0 {
		s.encoded = kv.NewEncoderCache(o.Encoder.Rows)
	}
	return s
}

// SetSwap gives the scheduler swap space, a pool of pages on the host with the same layout as
// its own. Preempted sequences keep their pages there while it has free ones. Call it before
// the first Add.
func (s *Scheduler) SetSwap(host *kv.Pool) { s.swap = host }

// PrefillLimiter limits the prefill of a step so that the step does not take too long.
// PrefillBudget returns how many of the next n positions of a sequence, which has from computed
// positions, a step that already has w may take: at least one if w has no prompt tokens and encodes
// nothing. Fits reports whether a step with w takes no longer.
type PrefillLimiter interface {
	PrefillBudget(w steptime.Work, from, n int) int
	Fits(w steptime.Work) bool
}

// SetPrefillLimiter limits, from the next step on, the prefill of steps in which other
// sequences decode; nil removes the limit. It needs chunked prefill.
func (s *Scheduler) SetPrefillLimiter(p PrefillLimiter) { s.limiter = p }

// NeverFitsError refuses a sequence that could never run to its end.
type NeverFitsError struct {
	Prompt int  // tokens
	Output int  // requested tokens
	Limit  int  // tokens
	Arena  bool // Limit is the capacity of the KV arena, otherwise the model length
}

func (e *NeverFitsError) Error() string {
	what := "the model length"
	if e.Arena {
		what = "the KV arena"
	}
	return fmt.Sprintf("a prompt of %d tokens and an output of %d never fit: %s is %d tokens", e.Prompt, e.Output, what, e.Limit)
}

// Add queues a sequence made by NewSeq. It fails with a *NeverFitsError if the prompt leaves no
// token of output within the model length, or if the sequence with its max_tokens, cut to the
// model length, needs more pages than the pool has, and with an *ItemError for one of its items.
func (s *Scheduler) Add(q *Seq) error {
	if q.state != created {
		return errors.New("scheduler: a sequence is added once")
	}
	n, want := len(q.spec.Prompt), q.spec.Params.MaxTokens
	switch {
	case n == 0:
		return errors.New("scheduler: the prompt has no tokens")
	case want < 1:
		return fmt.Errorf("scheduler: max_tokens is %d, want at least 1", want)
	case n+1 > s.opts.MaxModelLen && !(q.spec.Pooling && n == s.opts.MaxModelLen):
		return &NeverFitsError{n, want, s.opts.MaxModelLen, false}
	}
	q.limit = s.opts.MaxModelLen
	if want < q.limit-n {
		q.limit = n + want
	}
	if q.spec.Pooling {
		q.limit = n + 1 // as if one token were sampled
	}
	// The last token is sampled and never computed.
	if l := s.pool.Layout(); l.SequenceSlabs(q.limit-1) > s.pool.Slabs() {
		return &NeverFitsError{n, q.limit - n, s.longest(), true}
	}
	if err := s.opts.CheckItems(n, q.spec.Items, q.wantsTargets()); err != nil {
		return err
	}
	s.count++
	q.arrival, q.state = s.count, waiting
	q.table = s.pool.NewTable(q.spec.Salt)
	q.table.SetOrigin(q.spec.Origin)
	if q.setItems(s.opts.Encoder.Whole); len(q.places) > 0 {
		q.table.SetItems(q.places)
	}
	s.waiting = s.opts.Policy.insert(s.waiting, q)
	return nil
}

// reservedOutput is for how many tokens of output a sequence's token list and page tables are
// allocated in advance; those of a longer output grow later.
const reservedOutput = 4096

// longest returns the length of the longest sequence, output included, that the arena can hold.
func (s *Scheduler) longest() int {
	l := s.pool.Layout()
	n := sort.Search(s.opts.MaxModelLen, func(n int) bool { return l.SequenceSlabs(n) > s.pool.Slabs() })
	if n <= 1 {
		return 0
	}
	return n
}

// Cancel ends a sequence without an Output. Results in flight for it are dropped. Its pages are
// free at once, since steps that reuse them run after those in flight. It returns false if the
// sequence had ended before or was never added.
func (s *Scheduler) Cancel(q *Seq) bool {
	if q.state != waiting && q.state != running {
		return false
	}
	s.end(q)
	return true
}

func (s *Scheduler) end(q *Seq) {
	if q.state == running {
		s.running = s.opts.Policy.remove(s.running, q)
	} else {
		s.waiting = s.opts.Policy.remove(s.waiting, q)
	}
	s.pool.Free(q.table)
	s.unindex(q)
	s.release(q)
	s.freeHost(q)
	q.state = ended
}

// Counts returns how many sequences run and wait.
func (s *Scheduler) Counts() (running, waiting int) { return len(s.running), len(s.waiting) }

// Tokens returns how many positions of running sequences are computed or in flight.
func (s *Scheduler) Tokens() int64 {
	var n int64
	for _, q := range s.running {
		n += int64(q.scheduled)
	}
	return n
}

// Idle reports whether no sequence runs or waits and no step is in flight.
func (s *Scheduler) Idle() bool {
	return len(s.running)+len(s.waiting)+len(s.flight) == 0
}

// Policy returns the order of running and waiting sequences.
func (s *Scheduler) Policy() Policy { return s.opts.Policy }

// SetPolicy changes the order of running and waiting sequences from the next step on.
func (s *Scheduler) SetPolicy(p Policy) {
	s.opts.Policy = p
	slices.SortFunc(s.running, p.compare)
	slices.SortFunc(s.waiting, p.compare)
}
