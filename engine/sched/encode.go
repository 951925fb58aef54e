package sched

import "vapp.dev/engine/kv"

// Encode is an item that a step encodes before it computes its rows.
type Encode struct {
	Item *Item
	At   int // its first row in the encoder cache
	run  *kv.Encoded
}

// beginItems begins the items of a new step.
func (s *Scheduler) beginItems() {
	if s.encoded == nil {
		return
	}
	s.encoded.BeginStep()
	s.whole = s.wholeNext()
}

// wholeNext returns how many tokens a step needs for the first running sequence that has a run next
// which is encoded and cannot be split; 0: there is none. Decoding sequences leave them to it, so
// that it does not wait for all of them to end.
func (s *Scheduler) wholeNext() int {
	if !s.opts.Encoder.Whole {
		return 0
	}
	for _, q := range s.running {
		if q.scheduled >= q.itemsEnd {
			continue
		}
		if i := q.itemAt(q.scheduled); q.places[i].From <= q.scheduled && s.encoded.Peek(q.items[i].key) != nil {
			return q.places[i].To - q.scheduled
		}
	}
	return 0
}

// limitItems is limitPrefill for a sequence with items to compute. It encodes the items that the
// positions reach, ends the part before one that cannot be encoded in this step, and splits none
// that must be whole.
func (s *Scheduler) limitItems(q *Seq, n int) int {
	n = s.prefillBudget(q.scheduled, n)
	for i := q.itemAt(q.scheduled); i < len(q.items) && q.places[i].From < q.scheduled+n; {
		m := &q.places[i]
		before := max(0, m.From-q.scheduled)
		if s.opts.Encoder.Whole && m.To > q.scheduled+n {
			if before > 0 || !s.wholeFits(q, m.To-q.scheduled) {
				if n = before; n == 0 && q.state == running {
					s.ensure(q, i, q.runEnd(i), true) // so that decoding sequences leave tokens of the next step to it
				}
				break
			}
			n = m.To - q.scheduled
		}
		end := q.runEnd(i)
		ok, encoded := s.ensure(q, i, end, before == 0)
		if !ok {
			n = before
			break
		}
		if encoded { // it takes time of the step
			if less := s.prefillBudget(q.scheduled, n); less < n {
				n = less
				continue
			}
		}
		i = end
	}
	s.hold(q)
	return n
}

// wholeFits reports whether the step may take the next n positions of q, which cannot be split. As
// with other prompts, the first of a step that encodes nothing is not limited.
func (s *Scheduler) wholeFits(q *Seq, n int) bool {
	if n > s.left() {
		return false
	}
	if w := s.step.Work; w.Prompt == 0 && w.Patches == 0 {
		return true
	}
	return s.prefillBudget(q.scheduled, n) >= n
}

// ensure sees to it that the rows of a run, items i to end−1 of q, are there for this step: they are in
// the cache, or the step encodes them. ok is false if neither is possible now. next means that they
// are what q needs next.
func (s *Scheduler) ensure(q *Seq, i, end int, next bool) (ok, encoded bool) {
	run := s.encoded.Use(q.items[i].key)
	if run == nil {
		patches := 0
		for k := i; k < end; k++ {
			patches += len(q.items[k].Across)
		}
		if !s.mayEncode(patches, end-i, next) {
			return false, false
		}
		if run = s.placeRun(q, &q.items[i]); run == nil {
			return false, false
		}
		for k := i; k < end; k++ {
			s.step.Encodes = append(s.step.Encodes, Encode{q.items[k].Item, run.At + q.items[k].offset, run})
		}
		s.step.Work.Patches += patches
		s.step.Work.Items += end - i
		encoded = true
	}
	for k := i; k < end; k++ {
		q.items[k].row = int32(run.At + q.items[k].offset)
	}
	return true, encoded
}

// mayEncode reports whether the step may encode that many more patches. While sequences decode, the
// step must be predicted to meet the target of the limiter. If it cannot, a step without prompts
// encodes an item all the same for a sequence that needs it next: its tokens follow in the next step.
func (s *Scheduler) mayEncode(patches, items int, next bool) bool {
	w := s.step.Work
	if w.Patches > 0 && w.Patches+patches > s.opts.Encoder.Budget {
		return false
	}
	if s.stepsPerToken == 0 {
		return true
	}
	if len(s.step.Rows) == 0 || w.Patches > 0 && len(s.flight) > 0 {
		// The sequences that decode wait for the step in flight. And a second item waits for the
		// encoding of the first, which begins when the step in flight has ended: its tokens would wait too.
		return false
	}
	if s.limiter == nil || next && w.Patches == 0 && w.Prompt == 0 {
		return true
	}
	w.Patches, w.Items = w.Patches+patches, w.Items+items
	return s.limiter.Fits(w)
}

// placeRun gives rows to the run of an item. A running sequence takes them from those that come after
// it in order, if need be, so the first in order always gets them.
func (s *Scheduler) placeRun(q *Seq, m *item) *kv.Encoded {
	run := s.encoded.Place(m.key, m.rows)
	for k := len(s.running) - 1; run == nil && q.state == running && k >= 0 && s.running[k] != q; k-- {
		if r := s.running[k]; r.held != nil {
			s.release(r)
			run = s.encoded.Place(m.key, m.rows)
		}
	}
	return run
}

// hold keeps the next run that a running sequence needs in the cache, if it is there.
func (s *Scheduler) hold(q *Seq) {
	var run *kv.Encoded
	if q.state == running && q.scheduled < q.itemsEnd {
		run = s.encoded.Peek(q.items[q.itemAt(q.scheduled)].key)
	}
	if run == q.held {
		return
	}
	s.release(q)
	if run != nil {
		s.encoded.Pin(run)
		q.held = run
	}
}

// release undoes hold.
func (s *Scheduler) release(q *Seq) {
	if q.held != nil {
		s.encoded.Unpin(q.held)
		q.held = nil
	}
}

// dropEncodes takes what a step without rows would encode from the cache again.
func (s *Scheduler) dropEncodes() {
	for _, e := range s.step.Encodes {
		for _, q := range s.running {
			if q.held == e.run {
				s.release(q)
			}
		}
		s.encoded.Remove(e.run)
	}
}

// encodedAt returns the encoded row of q's token at a position, for the step that is prepared; −1 if it
// has none or is not encoded.
func (s *Scheduler) encodedAt(q *Seq, p int) int32 {
	for i := range q.places {
		if m := &q.places[i]; m.At <= p && p < m.End() {
			if run := s.encoded.Use(q.items[i].key); run != nil {
				return int32(run.At + q.items[i].offset + p - m.At)
			}
		}
	}
	return -1
}

// countItems counts the items that begin among count positions of q from from on.
func (s *Scheduler) countItems(q *Seq, from, count int) {
	for i := range q.places {
		if at := q.places[i].At; at >= from && at < from+count {
			s.stats.Items++
		}
	}
}

// EncodedRows returns how many rows the encoder cache has, and how many hold an item.
func (s *Scheduler) EncodedRows() (rows, held int) {
	if s.encoded == nil {
		return 0, 0
	}
	return s.encoded.Rows(), s.encoded.Held()
}

// EncoderUsage returns the counts of the encoder cache.
func (s *Scheduler) EncoderUsage() kv.EncoderUsage {
	if s.encoded == nil {
		return kv.EncoderUsage{}
	}
	return s.encoded.Usage()
}
