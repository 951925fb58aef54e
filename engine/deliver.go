package engine

import (
	"math"
	"time"

	"vapp.dev/engine/runner"
	"vapp.dev/engine/sched"
)

// deliver pushes the output of a committed step to its sequence's stream.
func (l *loop) deliver(set int, o sched.Output, now time.Time, report *StepStats) {
	c := l.choices[o.Seq]
	if c == nil {
		return
	}
	if c.pooled != nil {
		l.deliverPooled(set, o, c, now)
		return
	}
	p := o.Seq.Params()
	prompt := o.Seq.Prompt()
	for k := range o.Targets {
		lp := l.runner.Logprob(set, o.TargetRow+k, p.PromptLogprobs)
		c.prompt = append(c.prompt, logprobOf(prompt[o.TargetPos+k], lp))
	}
	if o.Token < 0 && o.Finish == sched.NotFinished {
		return
	}
	ev := Event{Token: o.Token, Finish: finishes[o.Finish], StopToken: o.StopToken, At: now}
	if ev.Finish == FinishError {
		ev.Err = l.noTokenError(set, o)
	}
	if o.Token >= 0 {
		switch {
		case p.Logprobs >= 0 && o.Row >= 0:
			lp := logprobOf(o.Token, l.runner.Logprob(set, o.Row, p.Logprobs))
			ev.Logprob = &lp
		case p.Logprobs >= 0:
			ev.Logprob = forcedLogprob(o.Token, p.Logprobs)
		}
		l.count(c, o.More, now, report)
		report.addGrammar(o.Seq)
	}
	if !c.started {
		c.started = true
		c.stats.CachedTokens = o.Seq.Cached()
		ev.Cached, ev.Prompt = c.stats.CachedTokens, c.prompt
		c.prompt = nil
	}
	if ev.Finish != NotFinished {
		l.retire(c, ev.Finish, now)
	}
	c.stream.push(ev)
}

// finishes maps the scheduler's finish reasons to the engine's.
var finishes = [...]Finish{
	sched.NotFinished: NotFinished, sched.FinishStop: FinishStop,
	sched.FinishLength: FinishLength, sched.FinishError: FinishError,
}

// finish ends a choice with an event that has no token.
func (l *loop) finish(c *choice, f Finish, why error, now time.Time) {
	l.retire(c, f, now)
	c.stream.push(Event{Token: -1, StopToken: -1, Finish: f, Err: why, At: now})
}

// retire removes a choice that has ended and reports its statistics.
func (l *loop) retire(c *choice, f Finish, now time.Time) {
	delete(l.choices, c.seq)
	closeStates([]sched.Grammar{c.seq.Grammar()})
	c.stats.Finish, c.stats.Finished = f, now
	l.e.open.Add(-1)
	c.adapter.end(c)
	if l.hooks.Finished != nil {
		l.hooks.Finished(c.stats)
	}
	if c.stats.Observer != nil {
		c.stats.Observer.Ended(c.stats)
	}
}

// logprobOf copies a row's logprobs out of the step buffers.
func logprobOf(token int32, lp runner.Logprob) Logprob {
	out := Logprob{Token: token, Logprob: lp.Logprob, Rank: lp.Rank}
	for i, id := range lp.TopIDs {
		out.Top = append(out.Top, TopLogprob{Token: id, Logprob: lp.TopProbs[i]})
	}
	return out
}

// forcedLogprob returns the logprob of a token that a grammar forced: 0, and −Inf for the
// others, lowest ids first. A row sampled on the device would give the same.
func forcedLogprob(token int32, top int) *Logprob {
	out := &Logprob{Token: token, Rank: 1}
	for id := int32(-1); len(out.Top) < top; id++ {
		switch {
		case id < 0:
			out.Top = append(out.Top, TopLogprob{Token: token})
		case id != token:
			out.Top = append(out.Top, TopLogprob{Token: id, Logprob: float32(math.Inf(-1))})
		}
	}
	return out
}
