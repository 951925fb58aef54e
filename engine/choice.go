package engine

import (
	"fmt"
	"math/rand/v2"
	"time"

	"vapp.dev/engine/grammar"
	"vapp.dev/engine/kv"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/sched"
)

// choice is one sequence of a request, with its stream and statistics.
type choice struct {
	seq      *sched.Seq
	stream   *Stream
	deadline time.Time
	stats    RequestStats
	prompt   []Logprob // prompt logprobs so far
	started  bool      // its first event was pushed
	adapter  *adapter  // nil: none
	pooled   *pooled   // collects its rows; nil: it generates tokens

	preemptions int // Seq.Preemptions when it was last looked at
}

// newSeqs returns the sequences of a request's choices. A request without a seed gets a random
// one. Each choice derives its own seed from the request's.
func newSeqs(r Request, a *adapter, states []sched.Grammar, items []sched.Item) []*sched.Seq {
	seed := r.Params.Seed
	if !r.Params.HasSeed {
		seed = rand.Uint64()
	}
	params := r.Params
	if r.Pooling != NoPooling {
		params = sample.Params{MaxTokens: 1, Logprobs: -1, PromptLogprobs: -1}
		if r.Pooling != PoolingLast {
			params.PromptLogprobs = 0 // a row of every position
		}
	}
	out := make([]*sched.Seq, len(states))
	for i := range out {
		out[i] = sched.NewSeq(sched.Spec{
			ID: r.ID, Prompt: r.Prompt, Params: &params, Seed: sample.ChoiceSeed(seed, i),
			Priority: r.Priority, Salt: a.salt(r.Salt), Origin: kv.Origin{Adapter: a.named(), Salt: r.Salt}, Adapter: a.number(), PrefixOwner: out[0], Grammar: states[i], Pooling: r.Pooling != NoPooling, Items: items,
		})
	}
	return out
}

// newStates returns the grammar state of each of n choices, nil for an unconstrained one.
func (r *Request) newStates(n int) ([]sched.Grammar, error) {
	out := make([]sched.Grammar, n)
	if r.Grammar != nil {
		if err := r.Grammar.Fits(n); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrGrammar, err)
		}
	}
	for i := range out {
		if r.Grammar != nil {
			s, err := r.Grammar.Begin(r.Preamble, r.Params.Jumps())
			if err != nil {
				closeStates(out[:i])
				return nil, err
			}
			out[i] = s
		}
		if r.Thinking != nil {
			out[i] = r.Thinking.begin(out[i])
		}
	}
	return out, nil
}

// closeStates frees grammar states whose sequences do not run any more.
func closeStates(states []sched.Grammar) {
	for _, g := range states {
		if t, is := g.(*thought); is {
			g = t.next
		}
		if s, is := g.(*grammar.State); is {
			s.Close()
		}
	}
}
