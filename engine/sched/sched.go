// Package sched decides which tokens run next: admission, chunked prefill,
// decode, preemption. It is pure: no clock, no device, no goroutine.
package sched

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"vapp.dev/engine/kv"
	"vapp.dev/engine/steptime"
)

// Scheduler decides. It is not safe for concurrent use.
type Scheduler struct {
	opts           Options
	pool           *kv.Pool
	swap           *kv.Pool // pages on the host, nil without
	running        []*Seq   // in the policy's order
	waiting        []*Seq   // in the policy's order
	flight         []*Step
	spare          []*Step
	out            []Output
	step           *Step          // being made by Next
	moves          []Move         // of pages, since the last step
	pageMoves      []kv.Move      // scratch
	proposalTokens int            // its tokens that are kept for proposals
	indexed        int            // tokens in the indexes of all sequences
	maxIndexed     int            // at most so many
	draftPages     bool           // pages are taken for what the device proposes behind a step
	stats          Stats          // since the last step
	limiter        PrefillLimiter // nil: a step takes what it has room for
	stepsPerToken  int            // steps between two tokens of the streams that prompts hold up; 0: they hold up none
	count          uint64
	need           []int
	noFit          struct { // the admission that did not fit, while nothing was freed
		seq   *Seq
		freed uint64
	}
}

// New makes a scheduler over a pool. It panics unless o.Validate is nil.
func New(o Options, pool *kv.Pool) *Scheduler {
	if err := o.Validate(); err != nil {
		panic(err)
	}
	l := pool.Layout()
	s := &Scheduler{opts: o, pool: pool, need: make([]int, len(l.Specs)), maxIndexed: int(l.Tokens(pool.Slabs())), draftPages: o.Drafts > 2}
	for _, c := range l.Specs {
		s.draftPages = s.draftPages && c.Kind != kv.Window
	}
	return s
}

// SetSwap gives the scheduler pages on the host, of the layout of its pool: sequences
// that are preempted leave their pages there while there is room. It is called before
// the first Add.
func (s *Scheduler) SetSwap(host *kv.Pool) { s.swap = host }

// Pace says how many of the next n positions of a sequence, of which from are computed,
// a step may take that has w already, so that it does not last too long: at least one
// if w has none of a prompt.
type PrefillLimiter interface {
	PrefillBudget(w steptime.Work, from, n int) int
}

// SetPrefillLimiter bounds from the next step on what prompts take of steps in which others
// decode; nil: nothing does. It needs chunked prefill.
func (s *Scheduler) SetPrefillLimiter(p PrefillLimiter) { s.limiter = p }

// NeverFitsError refuses a sequence that could never run to its end.
type NeverFitsError struct {
	Prompt int  // tokens
	Output int  // tokens asked for
	Limit  int  // tokens
	Arena  bool // Limit is what the KV arena holds, else the model length
}

func (e *NeverFitsError) Error() string {
	what := "the model length"
	if e.Arena {
		what = "the KV arena"
	}
	return fmt.Sprintf("a prompt of %d tokens and an output of %d never fit: %s is %d tokens", e.Prompt, e.Output, what, e.Limit)
}

// Add queues a sequence that NewSeq made. It refuses with a *NeverFitsError a
// prompt that leaves no room for a token within the model length, and a sequence
// whose max_tokens, cut to the model length, would need more pages than there
// are.
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
		q.limit = n + 1 // as if a token were drawn
	}
	// The last token is drawn and never computed.
	if l := s.pool.Layout(); l.SequenceSlabs(q.limit-1) > s.pool.Slabs() {
		return &NeverFitsError{n, q.limit - n, s.longest(), true}
	}
	s.count++
	q.arrival, q.state = s.count, waiting
	q.table = s.pool.NewTable(q.spec.Salt)
	s.waiting = s.opts.Policy.insert(s.waiting, q)
	return nil
}

// reservedOutput is how many tokens of output a sequence's history and tables have room for from
// its first step; those of a longer one double now and then.
const reservedOutput = 4096

// longest is the longest sequence, output included, that the arena can hold.
func (s *Scheduler) longest() int {
	l := s.pool.Layout()
	n := sort.Search(s.opts.MaxModelLen, func(n int) bool { return l.SequenceSlabs(n) > s.pool.Slabs() })
	if n <= 1 {
		return 0
	}
	return n
}

// Cancel ends a sequence without output; what is in flight for it is dropped
// and its pages are free at once: the steps that may use them next come after
// those in flight. False: it had ended before, or was never added.
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
	s.freeHost(q)
	q.state = ended
}

// Counts is how many sequences run and wait.
func (s *Scheduler) Counts() (running, waiting int) { return len(s.running), len(s.waiting) }

// Tokens is how many positions of running sequences are computed or in flight: what
// the pages of sequences hold.
func (s *Scheduler) Tokens() int64 {
	var n int64
	for _, q := range s.running {
		n += int64(q.scheduled)
	}
	return n
}

// Idle says that there is nothing to run and nothing in flight.
func (s *Scheduler) Idle() bool {
	return len(s.running)+len(s.waiting)+len(s.flight) == 0
}

// Policy is the order of what waits and runs.
func (s *Scheduler) Policy() Policy { return s.opts.Policy }

// SetPolicy changes the order of what waits and runs, from the next step on.
func (s *Scheduler) SetPolicy(p Policy) {
	s.opts.Policy = p
	slices.SortFunc(s.running, p.compare)
	slices.SortFunc(s.waiting, p.compare)
}
