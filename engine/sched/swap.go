package sched

// save copies the pages of a sequence that is losing them to the host, if there is
// room. A sequence shares most of its pages only with others that run: these stay
// findable, so that computing the rest again is less work than moving all. One whose
// state is still that of a checkpoint has computed nothing yet.
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

// restore begins the sequences that wait first and have their pages on the host, without
// a row yet. It comes before the step's rows: a row still reads pages that its sequence
// has given up, and what comes from the host is there before the step runs.
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

// fill gives a waiting sequence the pages of what it need not compute: those that
// it left on the host, or the longest prefix that is cached. False: there are too
// few.
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

// empty undoes fill; the moves from mark on are its.
func (s *Scheduler) unloadPages(q *Seq, mark int) {
	s.pool.Free(q.table)
	s.moves = s.moves[:mark]
	q.scheduled = 0
}

// forget gives up what q has on the host.
func (s *Scheduler) freeHost(q *Seq) {
	if q.hostTable != nil {
		s.swap.Free(q.hostTable)
		q.hostTable, q.hostTokens = nil, 0
	}
}
