package chat

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
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
	go func() {
		defer stop()
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

// step continues every beam by each of the likeliest tokens.
func (b *search) step(ctx context.Context, live []*beam) ([]*beam, error) {
	streams := make([]*engine.Stream, len(live))
	defer func() {
		for _, st := range streams {
			if st != nil {
				st.Cancel()
			}
		}
	}()
	for i, l := range live {
		req := b.req
		req.Prompt = slices.Clone(b.prompt)
		for _, at := range l.path() {
			req.Prompt = append(req.Prompt, at.logprob.Token)
		}
		st, err := b.s.cfg.Engine.Submit(ctx, req)
		if err != nil {
			return nil, err
		}
		streams[i] = st[0]
	}
	var out []*beam
	for i, st := range streams {
		lp, err := onlyLogprob(ctx, st)
		if err != nil {
			return nil, err
		}
		for rank := range min(len(lp.Top), 2*b.width) {
			if n := b.extend(live[i], lp.Top, rank); n != nil {
				out = append(out, n)
			}
		}
	}
	return out, nil
}

// extend is a beam with one more token, that of rank in top; nil where it may not come.
func (b *search) extend(l *beam, top []engine.TopLogprob, rank int) *beam {
	t := top[rank]
	out := &beam{
		from: l, n: l.n + 1, sum: l.sum + float64(t.Logprob), stop: -1,
		logprob: engine.Logprob{Token: t.Token, Logprob: t.Logprob, Rank: int32(rank + 1), Top: top},
	}
	early := out.n < b.ends.MinTokens && b.ends.StopAt(t.Token, b.ends.MinTokens) != sample.GoOn
	if early || math.IsInf(out.sum, -1) {
		return nil
	}
	switch b.ends.StopAt(t.Token, out.n) {
	case sample.AtEOS:
		out.ended = true
	case sample.AtToken:
		out.ended, out.stop = true, t.Token
	}
	return out
}

// onlyLogprob is that of a request's only token.
func onlyLogprob(ctx context.Context, st *engine.Stream) (*engine.Logprob, error) {
	evs, err := st.Next(ctx)
	if err != nil {
		return nil, err
	}
	for _, ev := range evs {
		switch {
		case ev.Logprob != nil:
			return ev.Logprob, nil
		case ev.Finish == engine.FinishError:
			return nil, orUnknown(ev.Err)
		case ev.Finish == engine.FinishAbort:
			return nil, errAborted
		}
	}
	return nil, errors.New("a token came without its logprobs")
}

// score ranks beams: the sum over the length to the power of length_penalty, the prompt
// and no EOS counted.
func (b *search) score(l *beam) float64 {
	n := len(b.prompt) + l.n
	if l.ended {
		n--
	}
	return l.sum / math.Pow(float64(n), b.penalty)
}

// best are the width best, the best first.
func (b *search) best(list []*beam) []*beam {
	slices.SortStableFunc(list, func(x, y *beam) int { return cmp.Compare(b.score(y), b.score(x)) })
	return list[:min(len(list), b.width)]
}

// settled says that no beam can get among the best of those that have ended any more:
// a sum only falls, and its divisor is the largest at one of the lengths' ends.
func (b *search) settled(live, done []*beam) bool {
	if len(done) < b.width {
		return false
	}
	worst := b.score(b.best(slices.Clone(done))[b.width-1])
	for _, l := range live {
		now, end := len(b.prompt)+l.n, len(b.prompt)+b.most
		most := max(math.Pow(float64(now), b.penalty), math.Pow(float64(end), b.penalty))
		if l.sum/most > worst {
			return false
		}
	}
	return true
}

// say gives a beam to its stream.
func (l *beam) say(push func(engine.Event), tell int) {
	for _, at := range l.path() {
		ev := engine.Event{Token: at.logprob.Token, StopToken: -1}
		if tell >= 0 {
			lp := at.logprob
			lp.Top = lp.Top[:min(tell, len(lp.Top))]
			ev.Logprob = &lp
		}
		if at == l {
			ev.Finish = engine.FinishLength
			if l.ended {
				ev.Finish, ev.StopToken = engine.FinishStop, l.stop
			}
		}
		push(ev)
	}
}
