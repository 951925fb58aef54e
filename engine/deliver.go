package engine

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"vapp.dev/engine/grammar"
	"vapp.dev/engine/runner"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/sched"
)

// schedOptions are the scheduler's part of the options, where the device proposes
// that many tokens.
func schedOptions(o Options, drafts int) sched.Options {
	lag := 0
	if o.Overlap {
		lag = 1
	}
	return sched.Options{
		MaxModelLen: o.MaxModelLen, MaxNumSeqs: o.MaxNumSeqs, MaxNumBatchedTokens: o.MaxNumBatchedTokens,
		MaxSamples: o.rows(), Lag: lag, ChunkedPrefill: o.ChunkedPrefill, Policy: o.Policy,
		Verify: o.Drafts, Lookup: o.Lookup, Drafts: drafts,
	}
}

// newSeqs makes the sequences of a request's choices. A request without a seed
// gets one that nobody can foresee; its choices derive theirs from it.
func newSeqs(r Request, states []sched.Grammar) []*sched.Seq {
	seed := r.Params.Seed
	if !r.Params.HasSeed {
		seed = rand.Uint64()
	}
	params := r.Params
	if r.Pool != NoPool {
		params = sample.Params{MaxTokens: 1, Logprobs: -1, PromptLogprobs: -1}
		if r.Pool != PoolLast {
			params.PromptLogprobs = 0 // a row of every position
		}
	}
	out := make([]*sched.Seq, len(states))
	for i := range out {
		out[i] = sched.NewSeq(sched.Spec{
			ID: r.ID, Prompt: r.Prompt, Params: &params, Seed: sample.ChoiceSeed(seed, i),
			Priority: r.Priority, Salt: r.Salt, Lead: out[0], Grammar: states[i], Pool: r.Pool != NoPool,
		})
	}
	return out
}

// states are what constrains each of n choices; nil in it where nothing does.
func (r *Request) states(n int) ([]sched.Grammar, error) {
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

// closeStates frees the states of sequences that do not run.
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

// receive takes what others asked for.
func (l *loop) receive() {
	l.mail = l.e.in.take(l.mail)
	for _, m := range l.mail {
		switch {
		case m.do != nil:
			m.do(l)
		case m.cancel != nil:
			l.cancel(m.cancel, m.finish)
		case l.policy != nil:
			l.held = append(l.held, m.add...)
			for _, c := range m.add {
				l.due(c)
			}
		default:
			l.add(m.add)
		}
	}
	clear(l.mail)
	// Before the policy, which waits for the last choice to end.
	if now := time.Now(); !l.soonest.IsZero() && !now.Before(l.soonest) {
		l.expire(now)
	}
	l.changePolicy()
}

// changePolicy makes the policy that waits the scheduler's, if nothing runs or it is that
// already, and adds the requests that were held for it.
func (l *loop) changePolicy() {
	c := l.policy
	switch {
	case c == nil:
	case l.sched.Idle() || c.to == l.sched.Policy():
		l.sched.SetPolicy(c.to)
		c.inForce <- true
		close(c.inForce)
		l.policy = nil
		l.add(l.held)
		l.held = nil
	case !c.waits:
		c.waits = true
		c.inForce <- false
	}
}

// tooLong is the scheduler's refusal in the engine's words.
func tooLong(err error) error {
	var e *sched.NeverFitsError
	if !errors.As(err, &e) {
		return err
	}
	what := "the model's maximum context length"
	if e.Arena {
		what = "what the KV cache holds"
	}
	return &TooLongError{Prompt: e.Prompt, Output: e.Output, Limit: e.Limit, What: what}
}

func (l *loop) add(cs []*choice) {
	for _, c := range cs {
		if err := l.sched.Add(c.seq); err != nil {
			l.finish(c, FinishError, tooLong(err), time.Now())
			continue
		}
		l.choices[c.seq] = c
		l.due(c)
	}
}

// due keeps the soonest deadline.
func (l *loop) due(c *choice) {
	if !c.deadline.IsZero() && (l.soonest.IsZero() || c.deadline.Before(l.soonest)) {
		l.soonest = c.deadline
	}
}

// cancel ends a choice wherever it is; its pages are free at once.
func (l *loop) cancel(c *choice, f Finish) {
	if c.stats.Finish != NotFinished {
		return
	}
	for i, h := range l.held {
		if h == c {
			l.held = append(l.held[:i], l.held[i+1:]...)
			break
		}
	}
	l.sched.Cancel(c.seq)
	l.finish(c, f, nil, time.Now())
}

// expire aborts the choices whose deadline has passed, and finds the next one.
func (l *loop) expire(now time.Time) {
	l.soonest = time.Time{}
	expired := func(c *choice) {
		if !c.deadline.IsZero() && !now.Before(c.deadline) {
			l.cancel(c, FinishAbort)
			return
		}
		l.due(c)
	}
	for _, c := range l.choices {
		expired(c)
	}
	for _, c := range slices.Clone(l.held) {
		expired(c)
	}
}

// deliver gives a sequence's stream what a committed step brought.
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
		ev.Err = l.noToken(set, o)
	}
	if o.Token >= 0 {
		switch {
		case p.Logprobs >= 0 && o.Row >= 0:
			lp := logprobOf(o.Token, l.runner.Logprob(set, o.Row, p.Logprobs))
			ev.Logprob = &lp
		case p.Logprobs >= 0:
			ev.Logprob = certain(o.Token, p.Logprobs)
		}
		l.count(c, o.More, now, report)
		report.grammar(o.Seq)
	}
	if !c.started {
		c.started = true
		c.stats.CachedTokens = o.Seq.Cached()
		ev.Cached, ev.Prompt = c.stats.CachedTokens, c.prompt
		c.prompt = nil
	}
	if ev.Finish != NotFinished {
		l.ended(c, ev.Finish, now)
	}
	c.stream.push(ev)
}

// grammar adds what a sequence's grammar cost.
func (r *StepStats) grammar(q *sched.Seq) {
	g := q.Grammar()
	if t, is := g.(*thought); is {
		g = t.next
	}
	s, is := g.(*grammar.State)
	if !is {
		return
	}
	t := s.Times()
	r.GrammarTime += t.Loop
	if t.Mask > 0 {
		r.MaskTimes = append(r.MaskTimes, t.Mask)
	}
}

// finishes are the engine's words for the scheduler's.
var finishes = [...]Finish{
	sched.NotFinished: NotFinished, sched.FinishStop: FinishStop,
	sched.FinishLength: FinishLength, sched.FinishError: FinishError,
}

// count adds a generated token to the figures; with more it came with the one
// before.
func (l *loop) count(c *choice, more bool, now time.Time, report *StepStats) {
	report.GenerationTokens++
	if c.stats.GenerationTokens == 0 {
		c.stats.FirstToken = now
		report.FirstTokens = append(report.FirstTokens, now.Sub(c.stats.Arrival))
	} else if !more {
		report.BetweenTokens = append(report.BetweenTokens, now.Sub(c.stats.LastToken))
	}
	c.stats.GenerationTokens++
	c.stats.LastToken = now
}

// finish ends a choice without a token.
func (l *loop) finish(c *choice, f Finish, why error, now time.Time) {
	l.ended(c, f, now)
	c.stream.push(Event{Token: -1, StopToken: -1, Finish: f, Err: why, At: now})
}

// ended forgets a choice and tells its figures.
func (l *loop) ended(c *choice, f Finish, now time.Time) {
	delete(l.choices, c.seq)
	closeStates([]sched.Grammar{c.seq.Grammar()})
	c.stats.Finish, c.stats.Finished = f, now
	l.e.open.Add(-1)
	if l.hooks.Finished != nil {
		l.hooks.Finished(c.stats)
	}
}

// account adds what the scheduler decided to a step's figures.
func (l *loop) account(s *sched.Step, report *StepStats) {
	report.PromptTokens, report.Preempted = s.Stats.PromptTokens, s.Stats.Preempted
	report.SwappedOut, report.SwappedIn = s.Stats.SwappedOut, s.Stats.SwappedIn
	report.CacheQueries, report.CacheHits = s.Stats.CacheQueries, s.Stats.CacheHits
	l.lost += int64(s.Stats.Preempted)
}

// speculated adds what became of a step's proposals.
func speculated(v sched.Speculation, report *StepStats) {
	report.Drafts, report.DraftTokens, report.AcceptedTokens = v.Drafts, v.Proposed, v.Accepted
	report.AcceptedPerPosition = v.PerPosition
}

// publish shows the state to Stats.
func (l *loop) publish() {
	running, waiting := l.sched.Counts()
	use := l.pool.Usage(0)
	swapped, swapUsed := 0, 0.0
	if l.swap != nil {
		swapped, swapUsed = l.swap.Tables(), l.swap.Share()
	}
	l.e.stats.set(Stats{
		Running: running, Waiting: waiting + len(l.held),
		KVPages: l.e.pages, KVUsed: l.pool.Share(), KVTokens: l.sched.Tokens(), KVCached: use.Cached, Swapped: swapped, SwapUsed: swapUsed,
		Preemptions: l.lost, Steps: l.steps,
	})
}

// logprobOf copies a row out of the step buffers.
func logprobOf(token int32, lp runner.Logprob) Logprob {
	out := Logprob{Token: token, Logprob: lp.Logprob, Rank: lp.Rank}
	for i, id := range lp.TopIDs {
		out.Top = append(out.Top, TopLogprob{Token: id, Logprob: lp.TopProbs[i]})
	}
	return out
}

// certain returns the logprob of the only token that a grammar allows: a row of the device
// would say the same, and list the lowest ids first among the others.
func certain(token int32, top int) *Logprob {
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

// published is the last snapshot. It is copied, not shared: a step makes no garbage of it.
type published struct {
	mu sync.Mutex
	is Stats
}

func (p *published) set(s Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.is = s
}

func (p *published) get() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.is
}
