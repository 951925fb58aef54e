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
