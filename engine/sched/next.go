package sched

// Next returns the next step: first one token of every decoding sequence, then more of the
// prompts in progress, then new sequences in the policy's order, then proposed tokens. It
// returns nil if nothing can run before a Commit or an Add, or if more than Lag steps are
// uncommitted.
func (s *Scheduler) Next() *Step {
	if len(s.flight) > s.opts.Lag {
		return nil
	}
	s.beginStep()
	s.beginItems()
	s.swapIn()
	if s.wholeStep() {
		s.admit()
	}
	s.decode()
	s.propose()
	s.markDecoding()
	s.prefill()
	s.admit()
	s.verify()
	return s.finish()
}

func (s *Scheduler) beginStep() {
	if n := len(s.spare); n > 0 {
		s.step, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		s.step = &Step{}
	}
	clear(s.step.Rows)
	clear(s.step.Encodes)
	s.pool.BeginStep()
	*s.step = Step{Rows: s.step.Rows[:0], Moves: s.step.Moves[:0], Encodes: s.step.Encodes[:0], Speculation: Speculation{PerPosition: s.step.Speculation.PerPosition[:0]}}
	s.proposalTokens, s.stepsPerToken = 0, 0
}

// markDecoding sets stepsPerToken: 0 if no sequence waits for a token after its first,
// otherwise the steps that each waits for. That is 2 if a sequence must know its last token
// while a step is in flight, as all sequences of a pipeline must, and so skips a step. Prefill scheduled from here on is limited.
func (s *Scheduler) markDecoding() {
	for _, q := range s.running {
		before := q.total()
		if q.inStep {
			before--
		}
		switch {
		case before <= len(q.spec.Prompt) || q.scheduled < len(q.spec.Prompt) || !q.inStep && q.total() >= q.limit:
		case s.opts.Lag > 0 && (s.opts.Staged || q.needsLastToken()):
			s.stepsPerToken = 2
		default:
			s.stepsPerToken = max(s.stepsPerToken, 1)
		}
	}
	s.step.Work.StepsPerToken = s.stepsPerToken
}

// prefillBudget returns how many of n positions that begin at from the limiter admits to the
// step.
func (s *Scheduler) prefillBudget(from, n int) int {
	if s.limiter == nil || s.stepsPerToken == 0 || n < 2 {
		return n
	}
	w := s.step.Work
	w.Decode += s.proposalTokens
	return s.limiter.PrefillBudget(w, from, n)
}

// limitPrefill returns how many of the next n positions of q the limiter admits to the step.
func (s *Scheduler) limitPrefill(q *Seq, n int) int {
	if n = min(n, s.left()); q.scheduled < q.itemsEnd {
		return s.limitItems(q, n)
	}
	return s.prefillBudget(q.scheduled, n)
}

// decode schedules the running sequences that have one token to compute.
func (s *Scheduler) decode() {
	share := s.share()
	if s.whole > 0 {
		share = min(share, len(s.step.Rows)+max(0, s.left()-s.whole))
	}
	for i := 0; i < len(s.running) && len(s.step.Rows) < share; {
		q := s.running[i]
		if !q.inStep && q.left() == 1 && q.scheduled >= q.itemsEnd && !s.blocked(q) && !s.extend(q, 1) && q.state != running {
			continue // q was preempted: the next sequence is at index i now
		}
		i++
	}
}

// blocked reports whether q must wait for a commit.
func (s *Scheduler) blocked(q *Seq) bool { return q.blocked() || s.opts.Staged && q.pending > 0 }

// share returns how many sequences of this step may decode. The steps in flight of a pipeline share them evenly.
func (s *Scheduler) share() int {
	if !s.opts.Staged || s.opts.Lag == 0 {
		return len(s.running)
	}
	decoding := len(s.step.Rows)
	for _, q := range s.running {
		if q.pending > 0 || !q.inStep && q.left() == 1 {
			decoding++
		}
	}
	return (decoding + s.opts.Lag) / (s.opts.Lag + 1)
}

// prefill schedules the running sequences that have several tokens to compute: prompts, and
// outputs to recompute after a preemption.
func (s *Scheduler) prefill() {
	for i := 0; i < len(s.running); {
		q := s.running[i]
		if !q.inStep && (q.left() > 1 || q.scheduled < q.itemsEnd) && !s.extend(q, q.left()) && q.state != running {
			continue
		}
		i++
	}
}

// extend schedules up to n positions of a running sequence. For pages it preempts other
// sequences, the last in order first. It returns false if the step is full or q itself was
// preempted.
func (s *Scheduler) extend(q *Seq, n int) bool {
	n = s.limitPrefill(q, n) // only once: Pool.Extend must be retried with the same positions
	for {
		c, ok := s.cut(q, n)
		if !ok {
			return false
		}
		if s.pool.Extend(q.table, q.scheduled, q.scheduled+c.count, q.scheduled+c.count) {
			s.add(q, c)
			return true
		}
		victim := s.running[len(s.running)-1]
		s.preempt(victim)
		if victim == q {
			return false
		}
	}
}

// part is the part of a sequence that a step computes.
type part struct {
	count   int  // positions
	draw    bool // the last position samples a token
	next    bool // the last position is sampled although the token after it is known
	targets int  // prompt logprobs
	from    int  // position of the first target
}

// cut returns the part of q's next n positions that fits the remaining tokens and sampled rows
// of the step. It returns false if nothing fits.
func (s *Scheduler) cut(q *Seq, n int) (part, bool) {
	rows := s.opts.MaxSamples - s.step.Samples
	p := part{count: min(n, s.left()), from: max(q.target, q.scheduled+1)}
	targets := func() int { return max(0, min(q.scheduled+p.count, len(q.spec.Prompt)-1)-p.from+1) }
	p.targets = targets()
	if p.targets > rows {
		p.count = p.from - 1 + rows - q.scheduled
		p.targets = targets()
	}
	p.draw = p.count == q.left()
	if p.draw && p.targets == rows {
		p.count--
		p.draw, p.targets = false, targets()
	}
	if p.next = s.opts.Drafts > 0 && !p.draw && p.count > 0 && !p.ends(q); p.next && p.targets == rows {
		p.count, p.next = max(0, p.from+p.targets-1-q.scheduled), false
		if p.targets == 0 {
			p.count = 0
		}
	}
	if s.opts.Encoder.Whole && q.scheduled < q.itemsEnd {
		if end := q.wholeEnd(q.scheduled + p.count); end < q.scheduled+p.count {
			if end <= q.scheduled {
				return part{}, false
			}
			return s.cut(q, end-q.scheduled)
		}
	}
	return p, p.count > 0
}

// ends reports whether the last target's row is that of the last position.
func (p part) ends(q *Seq) bool { return p.targets > 0 && p.from+p.targets == q.scheduled+p.count+1 }

// left returns how many more tokens the step can take, without those reserved for proposals.
func (s *Scheduler) left() int { return s.opts.MaxNumBatchedTokens - s.proposalTokens - s.step.Tokens }

// add appends a row to the step and plans the state snapshots that it stores.
func (s *Scheduler) add(q *Seq, p part) {
	r := Row{Seq: q, From: q.scheduled, Count: p.count, Ref: -1, Targets: p.targets, Draw: p.draw, Next: -1, NextEncoded: -1, epoch: q.epoch}
	if p.targets > 0 {
		r.TargetPos = p.from
		q.target = p.from + p.targets
	}
	if p.next {
		r.Next = q.tokens[q.scheduled+p.count]
	}
	s.pool.PlanSnapshots(q.table, q.tokens, q.scheduled, q.scheduled+p.count, len(q.spec.Prompt))
	if q.scheduled == len(q.tokens) {
		r.Ref = q.drawn
	} else {
		r.Tokens = q.tokens[q.scheduled : q.scheduled+p.count]
	}
	if p.draw {
		q.pending++
	}
	s.step.Samples += p.targets + r.draws()
	s.step.Work = s.step.Work.With(q.scheduled, p.count)
	q.scheduled += p.count
	if q.held != nil || r.From < q.itemsEnd {
		s.countItems(q, r.From, p.count)
		s.hold(q)
	}
	if s.opts.Drafts > 0 && q.scheduled < q.itemsEnd {
		r.NextEncoded = s.encodedAt(q, q.scheduled)
	}
	q.inStep = true
	s.step.Tokens += p.count
	s.step.Rows = append(s.step.Rows, r)
}

// finish numbers the sampled rows and returns the step, nil if it has no rows.
func (s *Scheduler) finish() *Step {
	st := s.step
	if len(st.Rows) == 0 {
		s.dropEncodes()
		s.step = nil
		s.spare = append(s.spare, st)
		return nil
	}
	s.step = nil
	s.stats.Encoded += len(st.Encodes)
	next := 0
	for i := range st.Rows {
		r := &st.Rows[i]
		q := r.Seq
		r.Sample = next
		next += r.Targets
		q.drawn = next
		next += r.draws()
		q.inStep = false
		if end := min(r.From+r.Count, len(q.spec.Prompt)); end > q.counted {
			s.stats.PromptTokens += end - max(q.counted, r.From)
			q.counted = end
		}
	}
	st.Moves, s.moves = append(st.Moves, s.moves...), s.moves[:0]
	st.Stats, s.stats = s.stats, Stats{}
	s.flight = append(s.flight, st)
	return st
}
