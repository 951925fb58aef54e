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

// beam is a candidate reply of a beam search, a list linked from its last token.
type beam struct {
	from    *beam // the beam without its last token; nil: no tokens yet
	logprob engine.Logprob
	n       int     // tokens
	sum     float64 // of their logprobs
	ended   bool    // the last token ends the reply
	stop    int32   // the token that ended it; −1: the tokenizer's own EOS
}

// path returns the beams from the first token to this one.
func (l *beam) path() []*beam {
	out := make([]*beam, l.n)
	for b := l; b.from != nil; b = b.from {
		out[b.n-1] = b
	}
	return out
}

// search is the beam search of one prompt, as in vLLM's API server: each step requests one
// token of each beam with its alternatives from the engine. Beams share the pages of their
// common prefix through the prefix cache.
type search struct {
	s       *Service
	req     engine.Request // for one token of one beam
	prompt  []int32
	width   int // beams
	most    int // maximum tokens of a reply
	top     int // alternatives that the client requested; −1: no logprobs
	penalty float64
	ends    *sample.Params // defines the tokens that end a reply
}

// checkBeams refuses parameters that a beam search would ignore: it ranks by the model's
// unmodified logprobs.
func checkBeams(a *RequestParams, _ *Settings) error {
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

// beams starts the search for the replies to a prompt. The streams get all their tokens when
// the search has ended.
func (s *Service) beams(ctx context.Context, r *Request, req engine.Request) ([]*engine.Stream, error) {
	a, p := &r.params, req.Params
	b := &search{
		s: s, req: req, prompt: req.Prompt, width: a.N, most: p.MaxTokens, top: p.Logprobs,
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
		for i, send := range push {
			if err == nil && i < len(best) {
				best[i].send(send, b.top)
				continue
			}
			ev := engine.Event{Token: -1, StopToken: -1, Finish: engine.FinishError, Err: cmp.Or(err, errNoBeam)}
			if errors.Is(err, errAborted) {
				ev.Finish, ev.Err = engine.FinishAbort, nil
			}
			send(ev)
		}
	}()
	return streams, nil
}

var (
	errNoBeam  = errors.New("the beam search found fewer replies than n")
	errAborted = errors.New("a step of the beam search was aborted")
)

// run returns the best replies, best first.
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
