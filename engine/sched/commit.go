package sched

import "vapp.dev/engine/sample"

// Commit takes the result of the oldest uncommitted step: tokens are appended,
// sequences end, full blocks become findable, pages are freed. Rows of sequences
// that have ended since are dropped. The outputs are valid until the next Commit,
// in the order of the step's rows. It panics when st is another step.
func (s *Scheduler) Commit(st *Step, r Result) []Output {
	if len(s.flight) == 0 || s.flight[0] != st {
		panic("scheduler: steps are committed once, in order")
	}
	s.flight = append(s.flight[:0], s.flight[1:]...)
	s.out = s.out[:0]
	for i := range st.Rows {
		if row := &st.Rows[i]; row.Seq.state != ended {
			s.commit(row, r)
		}
	}
	s.spare = append(s.spare, st)
	return s.out
}

func (s *Scheduler) commit(row *Row, r Result) {
	q := row.Seq
	out := Output{Seq: q, Token: -1, Row: -1, StopToken: -1}
	for i := row.Sample; i < row.Sample+row.Targets; i++ {
		if r.Status[i] != 0 {
			out.Finish = FinishError
		}
	}
	if row.Targets > 0 {
		out.Targets, out.TargetPos, out.TargetRow = row.Targets, row.TargetPos, row.Sample
	}
	if row.Draw {
		q.pending--
		if at := row.DrawRow(); r.Status[at] != 0 || r.Tokens[at] < 0 {
			out.Finish = FinishError
		} else if out.Finish == NotFinished {
			out.Token, out.Row, out.First = r.Tokens[at], at, len(q.tokens) == len(q.spec.Prompt)
			q.tokens = append(q.tokens, out.Token)
			out.Finish, out.StopToken = s.ends(q, out.Token)
		}
	}
	if row.epoch == q.epoch && out.Finish != FinishError {
		q.done = row.From + row.Count
		s.pool.Seal(q.table, q.tokens, q.done)
	}
	if out.Finish != NotFinished {
		s.end(q)
	}
	if out.Token >= 0 || out.Targets > 0 || out.Finish != NotFinished {
		s.out = append(s.out, out)
	}
}

// ends says whether the newest token is the last: a stop token first, then the
// length.
func (s *Scheduler) ends(q *Seq, token int32) (Finish, int32) {
	switch q.spec.Params.StopAt(token, len(q.Output())) {
	case sample.AtEOS:
		return FinishStop, -1
	case sample.AtToken:
		return FinishStop, token
	}
	if len(q.tokens) >= q.limit {
		return FinishLength, -1
	}
	return NotFinished, -1
}
