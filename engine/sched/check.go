package sched

import (
	"fmt"

	"vapp.dev/engine/kv"
)

// Check verifies the scheduler's state between two of its calls: the running and waiting
// sequences, their order and counts, and that every page of the pools is accounted for exactly
// once. Its time grows with the number of pages.
func (s *Scheduler) Check() error {
	if err := s.pool.Check(); err != nil {
		return err
	}
	if s.swap != nil {
		if err := s.swap.Check(); err != nil {
			return fmt.Errorf("swap: %w", err)
		}
		saved := 0
		for _, q := range s.waiting {
			if q.hostTable != nil {
				saved++
			}
		}
		if n := s.swap.Tables(); n != saved {
			return fmt.Errorf("scheduler: %d waiting sequences have pages on the host and %d own some", saved, n)
		}
	}
	if len(s.running) > s.opts.running() {
		return fmt.Errorf("scheduler: %d sequences run, at most %d may", len(s.running), s.opts.running())
	}
	if len(s.flight) > s.opts.Lag+1 {
		return fmt.Errorf("scheduler: %d steps are uncommitted, at most %d may be", len(s.flight), s.opts.Lag+1)
	}
	if n := s.pool.Tables(); n != len(s.running) {
		return fmt.Errorf("scheduler: %d sequences run and %d own pages", len(s.running), n)
	}
	if err := s.checkEncoded(); err != nil {
		return fmt.Errorf("scheduler: %w", err)
	}
	flying, drawn := map[*Seq]int{}, map[*Seq]int{}
	for _, st := range s.flight {
		for i := range st.Rows {
			if r := &st.Rows[i]; r.epoch == r.Seq.epoch {
				flying[r.Seq] += r.Count
			}
			if st.Rows[i].Draw {
				drawn[st.Rows[i].Seq] += st.Rows[i].draws()
			}
		}
	}
	for _, l := range []struct {
		is   state
		list []*Seq
	}{{running, s.running}, {waiting, s.waiting}} {
		for i, q := range l.list {
			if i > 0 && s.opts.Policy.compare(l.list[i-1], q) >= 0 {
				return fmt.Errorf("scheduler: %s is after %s, against the policy's order", q.ID(), l.list[i-1].ID())
			}
			if q.state != l.is || q.inStep {
				return fmt.Errorf("scheduler: %s is in state %d but in the list of state %d, in the step: %v", q.ID(), q.state, l.is, q.inStep)
			}
			if err := q.check(flying[q], drawn[q]); err != nil {
				return fmt.Errorf("scheduler: %s %w", q.ID(), err)
			}
		}
	}
	return nil
}

// checkEncoded verifies that the encoder cache pins what running sequences hold: the run that each
// needs next.
func (s *Scheduler) checkEncoded() error {
	if s.encoded == nil {
		return nil
	}
	pinned := map[*kv.Encoded]int{}
	for _, q := range s.running {
		if q.held == nil {
			continue
		}
		pinned[q.held]++
		if i := q.itemAt(q.scheduled); i == len(q.items) || q.items[i].key != q.held.Hash {
			return fmt.Errorf("%s holds an item that it does not need at %d", q.ID(), q.scheduled)
		}
	}
	for _, q := range s.waiting {
		if q.held != nil {
			return fmt.Errorf("%s waits and holds an item", q.ID())
		}
	}
	return s.encoded.Check(pinned)
}

// check verifies that q's counts are consistent. flying and drawn are the positions and the
// sampled tokens in flight for it.
func (q *Seq) check(flying, drawn int) error {
	switch {
	case q.pending != drawn:
		return fmt.Errorf("counts %d tokens in flight, but there are %d", q.pending, drawn)
	case len(q.tokens) < len(q.spec.Prompt) || q.total() > q.limit:
		return fmt.Errorf("has %d tokens and %d in flight, of %d to %d", len(q.tokens), q.pending, len(q.spec.Prompt), q.limit)
	case q.state == waiting && (q.scheduled != 0 || q.computed != 0 || q.table.NumPages() != 0):
		return fmt.Errorf("waits with %d pages, %d positions computed of %d scheduled", q.table.NumPages(), q.computed, q.scheduled)
	case (q.hostTable != nil) != (q.hostTokens > 0) || q.hostTokens > 0 && (q.state == running || q.hostTokens > q.total()):
		return fmt.Errorf("has the pages of %d positions on the host, in state %d with %d tokens", q.hostTokens, q.state, q.total())
	case q.state == running && (q.scheduled != q.computed+flying || q.scheduled > q.total() || q.scheduled == 0):
		return fmt.Errorf("has %d positions computed, %d in flight and %d scheduled, of %d", q.computed, flying, q.scheduled, q.total())
	}
	return nil
}
