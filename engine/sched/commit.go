package sched

import (
	"slices"

	"vapp.dev/engine/sample"
)

// Commit applies the result of the oldest uncommitted step: it appends tokens, ends sequences,
// enters full blocks into the prefix cache and frees pages. Rows of sequences that have ended
// are dropped, as are tokens after one that ends its sequence. The outputs are in the order of
// the step's rows and valid until the next Commit. It panics if st is another step.
func (s *Scheduler) Commit(st *Step, r Result) []Output {
	if len(s.flight) == 0 || s.flight[0] != st {
		panic("scheduler: steps are committed once, in order")
	}
	s.flight = append(s.flight[:0], s.flight[1:]...)
	s.out = s.out[:0]
	for i := range st.Rows {
		if st.Rows[i].Seq.state != ended {
			s.commit(st, i, r)
		}
	}
	s.spare = append(s.spare, st)
	return s.out
}

func (s *Scheduler) commit(st *Step, i int, r Result) {
	row := &st.Rows[i]
	q := row.Seq
	out := Output{Seq: q, Token: -1, Row: -1, StopToken: -1}
	for t := row.Sample; t < row.Sample+row.Targets && !q.spec.Pooling; t++ {
		if r.Status[t] != 0 {
			out.Finish = FinishError
		}
	}
	if row.Targets > 0 {
		out.Targets, out.TargetPos, out.TargetRow = row.Targets, row.TargetPos, row.Sample
	}
	done := row.From + row.Count
	if row.Draw {
		q.pending -= row.draws()
		n := s.countAccepted(st, i, r)
		done += n - row.draws()
		if q.spec.Pooling {
			out.Row, out.Finish = row.DrawRow(), FinishStop
		} else {
			out = s.draw(row, n, r, out)
		}
	}
	if row.epoch == q.epoch && out.Finish != FinishError {
		q.computed = min(done, len(q.tokens))
		s.pool.Seal(q.table, q.tokens, q.computed)
		if row.Draw && s.opts.Verify > 0 {
			s.rewind(q, i, r)
		}
	}
	if out.Finish != NotFinished {
		s.end(q)
	}
	if out.Token >= 0 || out.Targets > 0 || out.Finish != NotFinished {
		s.out = append(s.out, out)
	}
}

// draw appends the first n sampled tokens of a row to its sequence, until one ends it. out is
// the Output of the first token; draw returns that of the last.
func (s *Scheduler) draw(row *Row, n int, r Result, out Output) Output {
	q := row.Seq
	for at := row.DrawRow(); at < row.DrawRow()+n && out.Finish == NotFinished; at++ {
		if out.Token >= 0 {
			s.out = append(s.out, out)
			out = Output{Seq: q, StopToken: -1, More: true}
		}
		out.Token, out.Row = -1, -1
		if r.Status[at] != 0 || r.Tokens[at] < 0 {
			out.Finish, out.Row = FinishError, at
			if g := q.spec.Grammar; g != nil {
				out.Err = g.Err()
			}
			break
		}
		out.Token, out.Row, out.First = r.Tokens[at], at, len(q.tokens) == len(q.spec.Prompt)
		q.tokens = append(q.tokens, out.Token)
		out.Finish, out.StopToken = s.ends(q, out.Token)
		if q.spec.Grammar != nil && out.Finish == NotFinished {
			out = s.follow(q, out)
		}
	}
	return out
}

// follow passes the sampled token of out to q's grammar and appends the tokens that the grammar
// forces. It returns the last Output.
func (s *Scheduler) follow(q *Seq, out Output) Output {
	forced, ended, err := q.spec.Grammar.Take(out.Token)
	for _, id := range forced {
		s.out = append(s.out, out)
		out = Output{Seq: q, Token: id, Row: -1, More: true}
		q.tokens = append(q.tokens, id)
		if out.Finish, out.StopToken = s.ends(q, id); out.Finish != NotFinished {
			return out
		}
	}
	switch {
	case err != nil:
		s.out = append(s.out, out)
		return Output{Seq: q, Token: -1, Row: -1, StopToken: -1, Finish: FinishError, Err: err}
	case ended:
		return s.close(q, out)
	}
	return out
}

// close ends a sequence whose grammar is complete after the token of out. It appends the EOS,
// the only token that may follow, without sampling; min_tokens and ignore_eos do not apply. If
// the model has no EOS, the last Output has no token.
func (s *Scheduler) close(q *Seq, out Output) Output {
	p := q.spec.Params
	if slices.Contains(p.EOS, out.Token) { // sampled, with ignore_eos
		out.Finish = FinishStop
		return out
	}
	s.out = append(s.out, out)
	out = Output{Seq: q, Token: p.End(), Row: -1, StopToken: -1, Finish: FinishStop, More: true}
	if out.Token >= 0 {
		q.tokens = append(q.tokens, out.Token)
		if out.Token != p.EOS[0] {
			out.StopToken = out.Token
		}
	}
	return out
}

// ends returns whether and why the newest token is the last, and the id that StopToken reports.
// A stop token takes precedence over the length.
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
