package sched

import (
	"vapp.dev/engine/kv"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/speculate"
)

// Spec describes a sequence.
type Spec struct {
	ID       string
	Prompt   []int32        // at least one token; must not change afterwards
	Params   *sample.Params // validated; may be shared by the choices of a request
	Seed     uint64         // of this choice
	Priority int            // lower runs first, under Priority
	Salt     string         // sequences of different salts share no cached prefixes
	Adapter  int32          // 1 + the slot of the adapter; 0: none
	Origin   kv.Origin      // names the blocks of the sequence to other programs
	// PrefixOwner is the first choice of the same request, nil for that choice itself. With
	// prefix caching a sequence waits until its PrefixOwner's prompt is computed and then
	// shares its pages.
	PrefixOwner *Seq
	// Grammar constrains the output; nil: unconstrained.
	Grammar Grammar
	// Pooling asks for output rows of the prompt in place of tokens: for the last row, and with
	// Params.PromptLogprobs ≥ 0 for every row. The sequence ends after the last one. No other
	// field of Params is used.
	Pooling bool
	// Items are the pictures of the prompt, in order of their positions.
	Items []Item
}

// Grammar constrains the output of a sequence. It sees only committed tokens, so preemption
// does not affect it.
type Grammar interface {
	// Take advances the grammar by a token. forced are tokens that follow without sampling;
	// ended reports that the output is complete.
	Take(token int32) (forced []int32, ended bool, err error)
	// Mask writes the allowed next tokens, one bit for each id, and reports whether there is
	// a constraint.
	Mask(words []uint32) bool
	// Err returns why the grammar cannot be followed any further, nil if it can.
	Err() error
}

// freer is a Grammar that knows when upcoming tokens do not affect its constraint.
type freer interface {
	// Free reports whether the token after the next n is unconstrained, whatever those are.
	Free(n int) bool
}

// state is the state of a sequence in the scheduler.
type state uint8

const (
	created state = iota
	waiting
	running
	ended
)

// Seq is a sequence in the scheduler: one choice of a request.
type Seq struct {
	spec       Spec
	arrival    uint64
	state      state
	tokens     []int32 // prompt and committed output
	limit      int     // number of tokens at which it ends, by max_tokens or the model length
	table      *kv.Table
	hostTable  *kv.Table // its pages in swap space while it waits; nil: none
	hostTokens int       // positions that those pages hold

	scheduled int  // positions computed or in flight
	computed  int  // positions computed by committed steps
	pending   int  // sampled tokens in flight
	drawn     int  // sampled row of the newest token in flight
	epoch     int  // number of preemptions: rows of an earlier epoch have lost their pages
	target    int  // next position whose prompt logprob is computed
	counted   int  // prompt positions counted in Stats
	cached    int  // prompt tokens found in the prefix cache
	seen      bool // was scheduled before
	inStep    bool // has a row in the step being built

	items    []item
	places   []kv.Item   // of items, as blocks depend on them
	itemsEnd int         // position behind the last item; 0: none
	shift    int         // from the position of a token behind the last item to its text position
	whole    bool        // Encoder.Whole
	held     *kv.Encoded // what it keeps in the encoder cache; nil: nothing

	index     *speculate.Index // n-gram index of its tokens; nil: none
	drafts    []int32          // tokens proposed by the device
	proposals []int32          // its newest token and the proposals of the step being built
}

// NewSeq returns a sequence for Add.
func NewSeq(s Spec) *Seq {
	q := &Seq{spec: s, target: len(s.Prompt)}
	if s.Params.PromptLogprobs >= 0 {
		q.target = 1
	}
	q.tokens = append(make([]int32, 0, len(s.Prompt)+16), s.Prompt...)
	return q
}

// ID returns the request's id.
func (q *Seq) ID() string { return q.spec.ID }

// Preemptions returns how often the sequence has lost its pages.
func (q *Seq) Preemptions() int { return q.epoch }

// Params returns the request's sampling parameters.
func (q *Seq) Params() *sample.Params { return q.spec.Params }

// Seed returns the seed of the choice.
func (q *Seq) Seed() uint64 { return q.spec.Seed }

// Prompt returns the prompt's tokens.
func (q *Seq) Prompt() []int32 { return q.tokens[:len(q.spec.Prompt)] }

// Output returns the output tokens committed so far.
func (q *Seq) Output() []int32 { return q.tokens[len(q.spec.Prompt):] }

// Cached returns how many prompt tokens were in the prefix cache when the sequence was first
// scheduled.
func (q *Seq) Cached() int { return q.cached }

// Pages returns the sequence's page table of a class, valid until the next call of the
// Scheduler.
func (q *Seq) Pages(class int) []int32 { return q.table.Pages(class) }

// Ended reports whether the sequence has finished or was cancelled.
func (q *Seq) Ended() bool { return q.state == ended }

// total returns how many tokens the sequence has, those in flight included.
func (q *Seq) total() int { return len(q.tokens) + q.pending }

// left returns how many positions can be scheduled now.
func (q *Seq) left() int { return q.total() - q.scheduled }

// Grammar returns the sequence's grammar, nil if it has none.
func (q *Seq) Grammar() Grammar { return q.spec.Grammar }

// Adapter returns the slot of the sequence's adapter, −1 if it has none.
func (q *Seq) Adapter() int32 { return q.spec.Adapter - 1 }

// needsOutput reports whether the host needs the earlier output tokens to prepare a row of q,
// for a mask or logit edits.
func (q *Seq) needsOutput() bool {
	return q.spec.Grammar != nil || q.spec.Params.NeedsOutput()
}

// blocked reports whether q must wait for a commit: its token in flight is the last one, or the
// next row's logit edits or mask need it.
func (q *Seq) blocked() bool {
	if q.pending == 0 || q.total() >= q.limit {
		return q.pending > 0
	}
	return q.needsLastToken()
}

// needsLastToken reports whether the host must know q's last token to prepare its next row.
// While a step is in flight, q then skips a step.
func (q *Seq) needsLastToken() bool {
	if f, is := q.spec.Grammar.(freer); is && f.Free(q.pending) {
		return q.spec.Params.NeedsOutput()
	}
	return q.needsOutput()
}

// wantsTargets reports whether prompt logprobs remain to be computed. The prompt then cannot
// come from the prefix cache.
func (q *Seq) wantsTargets() bool { return q.target < len(q.spec.Prompt) }
