package sched

// swapOut copies the pages of a sequence that is being preempted to swap space, if it has free
// pages. It skips a sequence that shares most of its pages with running ones: those stay in the
// prefix cache, and recomputing the rest is less work than moving all. It also skips a sequence
// whose recurrent state is still that of a snapshot, since it has computed nothing yet.
func (s *Scheduler) swapOut(q *Seq) {
	if s.swap == nil || q.scheduled == 0 || q.table.Unread(q.scheduled) {
		return
	}
	if shared, held := s.pool.SharedPages(q.table); 2*shared > held {
		return
	}
	if q.hostTable == nil {
		q.hostTable = s.swap.NewTable(q.spec.Salt)
	}
	var ok bool
	if s.pageMoves, ok = s.swap.Mirror(q.hostTable, q.table, q.scheduled, nil, s.pageMoves[:0]); !ok {
		q.hostTable = nil
		return
	}
	q.hostTokens = q.scheduled
	s.stats.SwappedOut++
	for _, m := range s.pageMoves {
		s.moves = append(s.moves, Move{Class: m.Class, Out: true, Page: m.From, Slot: m.To})
	}
}

// swapIn starts the first waiting sequences while they have their pages in swap space, without
// a row yet. It runs before the step has rows: a row may still read pages that its sequence has
// released, and pages are swapped in before the step runs.
func (s *Scheduler) swapIn() {
	for i := 0; s.swap != nil && i < len(s.waiting) && len(s.running) < s.opts.running(); {
		switch q := s.waiting[i]; {
		case q.pending > 0 || s.awaitsOwner(q):
			i++
		case q.hostTable == nil || !s.place(q):
			return
		default:
			s.start(q)
		}
	}
}

// loadPages gives a waiting sequence the pages of its positions that need not be computed:
// those in swap space, or the longest cached prefix. It returns false if there are too few
// free pages.
func (s *Scheduler) loadPages(q *Seq) bool {
	if q.hostTable == nil {
		if !q.wantsTargets() {
			q.scheduled = s.pool.Match(q.table, q.tokens)
		}
		return true
	}
	var ok bool
	if s.pageMoves, ok = s.pool.Mirror(q.table, q.hostTable, q.hostTokens, q.tokens, s.pageMoves[:0]); !ok {
		return false
	}
	q.scheduled = q.hostTokens
	for _, m := range s.pageMoves {
		s.moves = append(s.moves, Move{Class: m.Class, Page: m.To, Slot: m.From})
	}
	return true
}

// unloadPages undoes loadPages, whose moves begin at index mark.
func (s *Scheduler) unloadPages(q *Seq, mark int) {
	s.pool.Free(q.table)
	s.moves = s.moves[:mark]
	q.scheduled = 0
}

// freeHost frees q's pages in swap space.
func (s *Scheduler) freeHost(q *Seq) {
	if q.hostTable != nil {
		s.swap.Free(q.hostTable)
		q.hostTable, q.hostTokens = nil, 0
	}
}
