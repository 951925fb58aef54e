package chat

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"

	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/engine"
	"vapp.dev/engine/sample"
)

// beam is a reply that a beam search follows, told by its last token.
type beam struct {
	from    *beam // nil: before the first token
	logprob engine.Logprob
	n       int     // tokens
	sum     float64 // of their logprobs
	ended   bool    // the last one ends a reply
	stop    int32   // which it is, −1: the tokenizer's own EOS
}

// path are the beams from the first token to this one.
func (l *beam) path() []*beam {
	out := make([]*beam, l.n)
	for b := l; b.from != nil; b = b.from {
		out[b.n-1] = b
	}
	return out
}

// search is the beam search of one prompt, as vLLM's API server does it: the engine is
// asked for one token of each beam and its alternatives, again and again; the pages of
// what beams have in common are in the prefix cache.
type search struct {
	s       *Service
	req     engine.Request // of one token of one beam
	prompt  []int32
	width   int // beams
	most    int // tokens of a reply
	tell    int // alternatives that the client asked for, −1: no logprobs
	penalty float64
	ends    *sample.Params // which tokens end a reply
}

// checkBeams refuses what a beam search would not heed: it ranks by what the model
// says before any edit.
func checkBeams(a *Ask, _ *Settings) error {
	if !a.Beam {
		return nil
	}
	for _, x := range []struct {
		name string
		set  bool
	}{
		{"frequency_penalty", a.FrequencyPenalty != 0}, {"presence_penalty", a.PresencePenalty != 0},
		{"repetition_penalty", a.RepetitionPenalty != nil && *a.RepetitionPenalty != 1},
		{"logit_bias", len(a.LogitBias) > 0}, {"allowed_token_ids", a.AllowedTokenIDs != nil}, {"bad_words", len(a.BadWords) > 0},
		{"prompt_logprobs", a.PromptLogprobs != nil}, {"structured_outputs", a.Structure != nil},
		{"tool_choice", a.ToolChoice == dialect.Required || a.ToolChoice == dialect.Named},
		{"thinking_token_budget", a.ThinkingBudget != nil},
	} {
		if x.set {
			return invalid(x.name, "%s cannot be combined with use_beam_search, which ranks replies by the model's own logprobs.", x.name)
		}
	}
	return nil
}

// beams starts the search for the replies to a prompt. Its streams get their tokens
// when it has ended.
func (s *Service) beams(ctx context.Context, r *Request, req engine.Request) ([]*engine.Stream, error) {
	a, p := &r.ask, req.Params
	b := &search{
		s: s, req: req, prompt: req.Prompt, width: a.N, most: p.MaxTokens, tell: p.Logprobs,
		penalty: a.LengthPenalty, ends: &p,
	}
	b.req.ID += "-beam"
	b.req.N, b.req.Params = 1, sample.Default()
	b.req.Params.Temperature, b.req.Params.MaxTokens, b.req.Params.EOS = 0, 1, p.EOS
	b.req.Params.Logprobs = max(2*b.width, p.Logprobs)
	if err := b.req.Params.Validate(s.limits(r.settings)); err != nil {
		return nil, paramError(err)
	}
	ctx, stop := context.WithCancel(ctx)
	streams, push := make([]*engine.Stream, b.width), make([]func(engine.Event), b.width)
	left := atomic.Int32{}
	left.Store(int32(b.width))
	for i := range streams {
		streams[i], push[i] = engine.NewStream(req.ID, func() {
			if left.Add(-1) == 0 {
				stop()
			}
		})
	}
	if req.Grammar != nil {
		req.Grammar.Hold()
	}
	go func() {
		defer stop()
		if req.Grammar != nil {
			defer req.Grammar.Release()
		}
		best, err := b.run(ctx)
		for i, say := range push {
			if err == nil && i < len(best) {
				best[i].say(say, b.tell)
				continue
			}
			ev := engine.Event{Token: -1, StopToken: -1, Finish: engine.FinishError, Err: cmp.Or(err, errNoBeam)}
			if errors.Is(err, errAborted) {
				ev.Finish, ev.Err = engine.FinishAbort, nil
			}
			say(ev)
		}
	}()
	return streams, nil
}

var (
	errNoBeam  = errors.New("the search has fewer replies than were asked for")
	errAborted = errors.New("a token of the search was aborted")
)

// run returns the best replies, the best first.
func (b *search) run(ctx context.Context) ([]*beam, error) {
	live, done := []*beam{{}}, []*beam(nil)
	for step := 0; step < b.most && len(live) > 0 && !b.settled(live, done); step++ {
		next, err := b.step(ctx, live)
		if err != nil {
			return nil, err
		}
		live = nil
		for _, n := range next {
			if n.ended {
				done = append(done, n)
			} else {
				live = append(live, n)
			}
		}
		live = b.best(live)
	}
	return b.best(append(done, live...)), nil
}
