package chat

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"vapp.dev/engine"
	"vapp.dev/engine/sample"
)

// step extends every beam by each of its likeliest tokens.
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

// extend returns a beam with one more token, the one of that rank in top; nil if the token
// is not allowed.
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

// onlyLogprob returns the logprob of a request's only token.
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
	return nil, errors.New("the engine returned a token without logprobs")
}

// score returns the rank of a beam: its sum divided by length^length_penalty. The length
// includes the prompt and excludes a final EOS.
func (b *search) score(l *beam) float64 {
	n := len(b.prompt) + l.n
	if l.ended {
		n--
	}
	return l.sum / math.Pow(float64(n), b.penalty)
}

// best returns the width best beams, best first.
func (b *search) best(list []*beam) []*beam {
	slices.SortStableFunc(list, func(x, y *beam) int { return cmp.Compare(b.score(y), b.score(x)) })
	return list[:min(len(list), b.width)]
}

// settled reports whether no live beam can still displace one of the best ended beams: a
// sum only falls, and its divisor is largest at either the current or the maximum length.
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

// send sends the tokens of a beam to its stream.
func (l *beam) send(push func(engine.Event), top int) {
	for _, at := range l.path() {
		ev := engine.Event{Token: at.logprob.Token, StopToken: -1}
		if top >= 0 {
			lp := at.logprob
			lp.Top = lp.Top[:min(top, len(lp.Top))]
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
