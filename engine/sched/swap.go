package sched

// save copies the pages of a sequence that is losing them to the host, if there is
// room. A sequence shares most of its pages only with others that run: these stay
// findable, so that computing the rest again is less work than moving all. One whose
// state is still that of a checkpoint has computed nothing yet.
func (s *Scheduler) save(q *Seq) {
	if s.swap == nil || q.sent == 0 || q.table.Unread(q.sent) {
		return
	}
	if shared, held := s.pool.Shared(q.table); 2*shared > held {
		return
	}
	if q.saved == nil {
		q.saved = s.swap.NewTable(q.spec.Salt)
	}
	var ok bool
	if s.paths, ok = s.swap.Mirror(q.saved, q.table, q.sent, nil, s.paths[:0]); !ok {
		q.saved = nil
		return
	}
	q.kept = q.sent
	s.stats.SwappedOut++
	for _, m := range s.paths {
		s.moves = append(s.moves, Move{Class: m.Class, Out: true, Page: m.From, Slot: m.To})
	}
}

// restore begins the sequences that wait first and have their pages on the host, without
// a row yet. It comes before the step's rows: a row still reads pages that its sequence
// has given up, and what comes from the host is there before the step runs.
func (s *Scheduler) restore() {
	for i := 0; s.swap != nil && i < len(s.waiting) && len(s.running) < s.opts.running(); {
		switch q := s.waiting[i]; {
		case q.pending > 0 || s.follows(q):
			i++
		case q.saved == nil || !s.placed(q):
			return
		default:
			s.start(q)
		}
	}
}

// fill gives a waiting sequence the pages of what it need not compute: those that
// it left on the host, or the longest prefix that is cached. False: there are too
// few.
func (s *Scheduler) fill(q *Seq) bool {
	if q.saved == nil {
		if !q.wantsTargets() {
			q.sent = s.pool.Match(q.table, q.tokens)
		}
		return true
	}
	var ok bool
	if s.paths, ok = s.pool.Mirror(q.table, q.saved, q.kept, q.tokens, s.paths[:0]); !ok {
		return false
	}
	q.sent = q.kept
	for _, m := range s.paths {
		s.moves = append(s.moves, Move{Class: m.Class, Page: m.To, Slot: m.From})
	}
	return true
}

// empty undoes fill; the moves from mark on are its.
func (s *Scheduler) empty(q *Seq, mark int) {
	s.pool.Free(q.table)
	s.moves = s.moves[:mark]
	q.sent = 0
}

// forget gives up what q has on the host.
func (s *Scheduler) forget(q *Seq) {
	if q.saved != nil {
		s.swap.Free(q.saved)
		q.saved, q.kept = nil, 0
	}
}
