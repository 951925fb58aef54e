package sched

import (
	"vapp.dev/engine/kv"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/speculate"
)

// Spec is what a sequence is made of.
type Spec struct {
	ID       string
	Prompt   []int32        // at least one token; kept, not copied, never changed
	Params   *sample.Params // validated; may be shared by the choices of a request
	Seed     uint64         // of this choice
	Priority int            // lower runs first, under Priority
	Salt     string         // separates prefix-cache contents
	// Lead is the first choice of the same prompt, nil for that one itself. With
	// prefix caching a sequence waits until its Lead's prompt is computed and
	// then shares its pages.
	PrefixOwner *Seq
	// Grammar constrains what the sequence says; nil: nothing does.
	Grammar Grammar
	// Pool asks for rows of the prompt, the last one and with Params.PromptLogprobs every
	// one, and for no token: the sequence ends when they have come. Of Params nothing else
	// is read.
	Pooling bool
}

// Grammar is what a sequence may say. It follows the tokens that are committed, so that
// preemptions do not touch it.
type Grammar interface {
	// Take moves on by the token that came. forced are tokens that follow without a
	// draw; ended says that nothing may follow.
	Take(token int32) (forced []int32, ended bool, err error)
	// Mask writes the tokens that may come next, one bit an id, and reports whether
	// there is a constraint now.
	Mask(words []uint32) bool
	// Err is why it cannot be followed any more.
	Err() error
}

// freer is a Grammar that can tell when the next tokens make no difference.
type freer interface {
	// Free says that whatever n tokens come, the one behind them may be any.
	Free(n int) bool
}

// state is where a sequence is.
type state uint8

const (
	created state = iota
	waiting
	running
	ended
)

// Seq is one choice of a request on its way through the scheduler.
type Seq struct {
	spec       Spec
	arrival    uint64
	state      state
	tokens     []int32 // prompt and committed output
	limit      int     // tokens at which it ends: max_tokens or the model length
	table      *kv.Table
	hostTable  *kv.Table // its pages on the host, while it waits for its own
	hostTokens int       // positions that these hold, 0 without

	scheduled int // positions computed or in flight
	computed  int // positions computed, by what is committed
	pending   int // drawn tokens in flight
	drawn     int // sampled row of the newest one
	epoch     int // counts preemptions: rows of an older one have lost their pages
	target    int // next position whose prompt logprob is to be taken
	counted   int // prompt positions that Stats has seen
	cached    int
	seen      bool // was scheduled before
	inStep    bool // has a row in the step that is being made

	index     *speculate.Index // of its tokens, where its proposals come from; nil: none
	drafts    []int32          // what the device proposes to follow its tokens
	proposals []int32          // its newest token and the proposals of the step that is being made
}

// NewSeq makes a sequence for Add.
func NewSeq(s Spec) *Seq {
	q := &Seq{spec: s, target: len(s.Prompt)}
	if s.Params.PromptLogprobs >= 0 {
		q.target = 1
	}
	q.tokens = append(make([]int32, 0, len(s.Prompt)+16), s.Prompt...)
	return q
}

// ID is the request's.
func (q *Seq) ID() string { return q.spec.ID }

// Params are the request's.
func (q *Seq) Params() *sample.Params { return q.spec.Params }

// Seed is of the request and choice.
func (q *Seq) Seed() uint64 { return q.spec.Seed }

// Prompt is the prompt's tokens.
func (q *Seq) Prompt() []int32 { return q.tokens[:len(q.spec.Prompt)] }

// Output is the tokens committed so far.
func (q *Seq) Output() []int32 { return q.tokens[len(q.spec.Prompt):] }

// Cached is how many prompt tokens came from the prefix cache when the sequence
// was first scheduled.
func (q *Seq) Cached() int { return q.cached }

// Pages is the sequence's page table of a class, valid until the next call of
// the Scheduler.
func (q *Seq) Pages(class int) []int32 { return q.table.Pages(class) }

// Ended says that the sequence has finished or was cancelled.
func (q *Seq) Ended() bool { return q.state == ended }

// total is how many tokens the sequence has, those in flight included.
func (q *Seq) total() int { return len(q.tokens) + q.pending }

// left is how many positions can be computed now.
func (q *Seq) left() int { return q.total() - q.scheduled }

// Grammar is what the sequence may say, nil where it is free.
func (q *Seq) Grammar() Grammar { return q.spec.Grammar }

// needsOutput says that a row of q depends on the tokens before it beyond their K and V.
func (q *Seq) needsOutput() bool {
	return q.spec.Grammar != nil || q.spec.Params.NeedsOutput()
}

// stuck says that nothing can be scheduled before a commit: the token in flight
// is surely the last, or must be known for the next row's logit edits or mask.
func (q *Seq) blocked() bool {
	if q.pending == 0 || q.total() >= q.limit {
		return q.pending > 0
	}
	return q.needsLastToken()
}

// sits says that the next row of q needs the token before it to be known: with a step in
// flight it sits one out.
func (q *Seq) needsLastToken() bool {
	if f, is := q.spec.Grammar.(freer); is && f.Free(q.pending) {
		return q.spec.Params.NeedsOutput()
	}
	return q.needsOutput()
}

// wantsTargets says that prompt logprobs are still to be taken, so that the
// prompt cannot come from the prefix cache.
func (q *Seq) wantsTargets() bool { return q.target < len(q.spec.Prompt) }
