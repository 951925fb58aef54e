package sched

import "slices"

// wholeStep reports whether, without chunked prefill, the next prompt does not fit a step
// together with the decoding sequences. It is then admitted before they are scheduled.
func (s *Scheduler) wholeStep() bool {
	if s.opts.ChunkedPrefill || len(s.waiting) == 0 {
		return false
	}
	q := s.waiting[0]
	return len(q.tokens)-q.hostTokens+len(s.running) > s.opts.MaxNumBatchedTokens
}

// admit starts waiting sequences in order while the step has tokens left and the pool has pages
// for all tokens they have. A sequence that does not fit blocks those after it. One that waits
// for a token in flight or for its PrefixOwner is skipped.
func (s *Scheduler) admit() {
	for i := 0; i < len(s.waiting); {
		q := s.waiting[i]
		if q.pending > 0 || s.awaitsOwner(q) {
			i++
			continue
		}
		if len(s.running) >= s.opts.running() || !s.tryStart(q) {
			return
		}
	}
}

// awaitsOwner reports whether q waits for the prompt that its PrefixOwner is computing.
func (s *Scheduler) awaitsOwner(q *Seq) bool {
	owner := q.spec.PrefixOwner
	if owner == nil || owner.state != running || q.hostTable != nil || !s.pool.Caching() || q.wantsTargets() {
		return false
	}
	n := len(owner.spec.Prompt)
	return owner.computed < n && n > s.pool.Layout().Specs[0].BlockSize
}

// tryStart moves q from waiting to running and adds it to the step. It returns false, and
// changes nothing, if q does not fit.
func (s *Scheduler) tryStart(q *Seq) bool {
	if s.left() <= 0 || s.step.Samples == s.opts.MaxSamples || s.prefillBudget(0, q.left()) == 0 {
		return false
	}
	mark := len(s.moves)
	if q.hostTable != nil && len(s.step.Rows) > 0 || !s.place(q) {
		return false
	}
	p, ok := s.cut(q, s.limitPrefill(q, q.left()))
	if ok && !s.opts.ChunkedPrefill && !q.wantsTargets() && q.itemsEnd == 0 {
		ok = p.draw
	}
	if ok && !s.allocate(q, p) && len(s.running) == 0 {
		// With no other sequence running it fits, once cached pages do not occupy slabs of
		// other classes.
		s.unloadPages(q, mark)
		s.pool.EvictAll()
		if ok = s.loadPages(q); ok {
			p, ok = s.cut(q, s.limitPrefill(q, q.left()))
		}
	}
	if !ok || !s.allocate(q, p) {
		s.unloadPages(q, mark)
		return false
	}
	s.start(q)
	s.add(q, p)
	return true
}

// allocate takes the pages that q needs for a part. It does nothing if q has them.
func (s *Scheduler) allocate(q *Seq, p part) bool {
	return s.pool.Extend(q.table, q.scheduled, q.scheduled+p.count, q.scheduled+p.count)
}

// place gives q the pages of its cached or swapped prefix, provided that the pool has pages for
// all of q's tokens. It returns false, and changes nothing, otherwise.
func (s *Scheduler) place(q *Seq) bool {
	if s.noFit.seq == q && s.noFit.freed == s.pool.Frees() {
		return false
	}
	mark := len(s.moves)
	if s.loadPages(q) && s.fitsWhole(q) {
		return true
	}
	s.unloadPages(q, mark)
	if len(s.running) > 0 {
		s.noFit.seq, s.noFit.freed = q, s.pool.Frees()
		return false
	}
	// With no other sequence running it fits, unless the cached pages it matched pin slabs
	// that another class needs.
	s.pool.EvictAll()
	return s.loadPages(q)
}

// start moves q, which has its prefix pages, from waiting to running.
func (s *Scheduler) start(q *Seq) {
	if q.hostTable != nil {
		s.freeHost(q)
		s.stats.SwappedIn++
	}
	s.waiting = s.opts.Policy.remove(s.waiting, q)
	s.running = s.opts.Policy.insert(s.running, q)
	q.state, q.computed = running, q.scheduled
	if !q.seen {
		q.seen, q.cached = true, q.scheduled
		capacity := min(q.limit, len(q.spec.Prompt)+reservedOutput)
		q.tokens = slices.Grow(q.tokens, max(0, capacity-len(q.tokens)))
		s.pool.Reserve(q.table, capacity)
		s.stats.Scheduled++
		if s.pool.Caching() {
			s.stats.CacheQueries += len(q.spec.Prompt)
			s.stats.CacheHits += q.scheduled
		}
	}
}

// fitsWhole reports whether the pool has pages for all tokens of q and one more, in addition to
// those that the running sequences need for theirs and another block each. So q is not
// preempted soon after its start.
func (s *Scheduler) fitsWhole(q *Seq) bool {
	clear(s.need)
	s.pool.Need(q.table, min(len(q.tokens)+1, q.limit-1), s.need)
	ahead := s.pool.Layout().Specs[0].BlockSize
	for _, r := range s.running {
		s.pool.Need(r.table, min(r.total()+ahead, r.limit-1), s.need)
	}
	return s.pool.Fits(s.need)
}

// preempt frees a running sequence's pages and makes it wait again. When it restarts, it swaps
// its pages in from the host or recomputes them. Its tokens in flight still arrive.
func (s *Scheduler) preempt(q *Seq) {
	if q.inStep {
		s.unschedule(q)
	}
	s.running = s.opts.Policy.remove(s.running, q)
	s.waiting = s.opts.Policy.insert(s.waiting, q)
	s.swapOut(q)
	s.pool.Free(q.table)
	s.unindex(q)
	s.release(q)
	q.state, q.scheduled, q.computed = waiting, 0, 0
	q.epoch++
	s.stats.Preempted++
	if len(s.running) == 0 {
		s.pool.EvictAll()
	}
}

// unschedule removes q's row from the step being built.
func (s *Scheduler) unschedule(q *Seq) {
	st := s.step
	i := slices.IndexFunc(st.Rows, func(r Row) bool { return r.Seq == q })
	r := st.Rows[i]
	st.Tokens -= r.Count
	st.Samples -= r.Targets + r.draws()
	st.Work = st.Work.Without(r.From, r.Count)
	if r.Targets > 0 {
		q.target = r.TargetPos
	}
	if r.Draw {
		q.pending -= r.draws()
	}
	st.Rows = slices.Delete(st.Rows, i, i+1)
	q.inStep = false
	q.scheduled = r.From
}
