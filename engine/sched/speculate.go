package sched

import "vapp.dev/engine/speculate"

// indexTokensPerStep is how many tokens a step may add to the n-gram indexes, over all
// sequences. The indexing of a prompt of 128K tokens is so spread over the steps that compute it.
const indexTokensPerStep = 4096

// mayPropose reports whether proposed tokens of q can be verified: its rows must not depend on
// output tokens that are not known when the rows are prepared.
func (s *Scheduler) mayPropose(q *Seq) bool {
	return s.opts.Verify > 0 && !q.needsOutput() && !q.wantsTargets()
}

// propose finds proposals for the sequences that decode in this step, and reserves tokens of
// the step for them: all remaining tokens, or half of them while prompts wait. If prompts wait
// that cannot be cut, it reserves none.
func (s *Scheduler) propose() {
	if s.opts.Verify == 0 {
		return
	}
	s.updateIndexes()
	wanted := 0
	for i := range s.step.Rows {
		q := s.step.Rows[i].Seq
		k := min(s.opts.Verify, q.limit-len(q.tokens)-1)
		if !s.mayPropose(q) || s.step.Rows[i].Count != 1 || q.pending != 1 || k < 1 {
			continue
		}
		q.proposals = append(q.proposals[:0], q.tokens[len(q.tokens)-1])
		if q.index != nil {
			q.proposals = q.index.Propose(q.proposals, q.tokens, k)
		} else {
			q.proposals = append(q.proposals, q.drafts[:min(k, len(q.drafts))]...)
		}
		wanted += len(q.proposals) - 1
	}
	left := max(0, s.left()-s.whole)
	if prompts := len(s.waiting) > 0 || len(s.running) > len(s.step.Rows); prompts && s.opts.ChunkedPrefill {
		left /= 2
	} else if prompts {
		left = 0
	}
	s.proposalTokens = min(wanted, left)
}

// updateIndexes adds new tokens to the n-gram indexes of the running sequences, those that
// decode first.
func (s *Scheduler) updateIndexes() {
	if s.opts.Lookup == (speculate.NGram{}) {
		return
	}
	most := indexTokensPerStep
	for _, decoding := range []bool{true, false} {
		for _, q := range s.running {
			if q.inStep != decoding || !s.mayPropose(q) {
				continue
			}
			if q.index == nil {
				q.index = speculate.NewIndex(s.opts.Lookup)
			}
			n := q.index.Read(q.tokens, min(most, s.maxIndexed-s.indexed))
			most -= n
			s.indexed += n
		}
	}
}

// unindex drops q's n-gram index and proposals.
func (s *Scheduler) unindex(q *Seq) {
	if q.index != nil {
		s.indexed -= q.index.Len()
		q.index = nil
	}
	q.drafts, q.proposals = q.drafts[:0], q.proposals[:0]
}

// verify adds proposals to the decoding rows, in order, while the step has tokens left and the
// pool has pages. It preempts nothing.
func (s *Scheduler) verify() {
	if s.opts.Verify == 0 {
		return
	}
	s.proposalTokens = 0
	for i := range s.step.Rows {
		r := &s.step.Rows[i]
		q := r.Seq
		k := s.pool.Layout().Speculative(r.From+1, min(len(q.proposals)-1, s.left(), s.opts.MaxSamples-s.step.Samples))
		for k > 0 && !s.pool.Extend(q.table, r.From, r.From+1, r.From+1+k) {
			k--
		}
		if k > 0 {
			r.Tokens, r.Proposed = q.proposals[:1+k], k
			r.Count += k
			q.scheduled += k
			q.pending += k
			s.step.Tokens += k
			s.step.Samples += k
			for i := range k {
				s.step.Work = s.step.Work.With(r.From+1+i, 1)
			}
		}
		q.proposals = q.proposals[:0]
		s.extendForDrafts(r)
	}
}

// extendForDrafts takes pages, if there are free ones, for the positions after a sampled token
// at which the model's own head computes K and V: those of all its proposals but the last two.
func (s *Scheduler) extendForDrafts(r *Row) {
	q := r.Seq
	if end := min(q.scheduled+s.opts.Drafts-2, q.limit-1); s.draftPages && r.Draw && end > q.scheduled {
		s.pool.Extend(q.table, r.From, r.From+r.Count-r.Proposed, end)
	}
}

// countAccepted returns how many of a row's sampled tokens are accepted, and adds them to the
// step's Speculation.
func (s *Scheduler) countAccepted(st *Step, i int, r Result) int {
	row := &st.Rows[i]
	if row.Proposed == 0 {
		return row.draws()
	}
	n := int(r.Accepted[i]) - row.Targets
	if n < 1 || n > row.draws() {
		panic("scheduler: the device accepts tokens that it was not given")
	}
	v := &st.Speculation
	v.Drafts++
	v.Proposed += row.Proposed
	v.Accepted += n - 1
	for len(v.PerPosition) < s.opts.Verify {
		v.PerPosition = append(v.PerPosition, 0)
	}
	for k := range n - 1 {
		v.PerPosition[k]++
	}
	return n
}

// rewind drops q's positions after the computed ones, which were rejected proposals, and stores
// the device's next proposals.
func (s *Scheduler) rewind(q *Seq, i int, r Result) {
	q.scheduled = q.computed
	s.pool.Trim(q.table, q.computed)
	q.drafts = q.drafts[:0]
	if d := s.opts.Drafts; d > 0 {
		for _, id := range r.Drafts[i*d : (i+1)*d] {
			if id < 0 {
				break
			}
			q.drafts = append(q.drafts, id)
		}
	}
}
