package backend

import "fmt"

// StepError names an input of a Launch that its program cannot run.
type StepError struct{ Field, Why string }

func (e *StepError) Error() string { return fmt.Sprintf("step: %s: %s", e.Field, e.Why) }

func stepError(field, format string, args ...any) error {
	return &StepError{field, fmt.Sprintf(format, args...)}
}

// Check returns a *StepError unless a launch of p with binding b stays inside the buffers
// of a set, the vocabulary and the pages of the KV arena of kvBytes. A Device whose
// kernels do not check bounds calls it in Launch. It reads the inputs once.
func (s *Step) Check(p *Program, b Binding, kvBytes int64) error {
	switch {
	case b.Tokens < 1 || b.Tokens > p.Bucket.Tokens || b.Tokens > len(s.Tokens):
		return &StepError{"Binding.Tokens", fmt.Sprintf("%d, at most %d", b.Tokens, min(p.Bucket.Tokens, len(s.Tokens)))}
	case b.Seqs < 1 || b.Seqs > p.Bucket.Seqs || b.Seqs > len(s.First)-1:
		return &StepError{"Binding.Seqs", fmt.Sprintf("%d, at most %d", b.Seqs, min(p.Bucket.Seqs, len(s.First)-1))}
	case b.Samples < 0 || b.Samples > p.Bucket.Samples || b.Samples > len(s.Rows):
		return &StepError{"Binding.Samples", fmt.Sprintf("%d, at most %d", b.Samples, min(p.Bucket.Samples, len(s.Rows)))}
	}
	if err := s.checkTokens(p, b); err != nil {
		return err
	}
	if err := s.checkAdapters(p, b); err != nil {
		return err
	}
	for class := range p.Classes {
		if err := s.checkPages(p, b, class, kvBytes); err != nil {
			return err
		}
	}
	for r := range b.Samples {
		if err := s.checkRow(p, b, r); err != nil {
			return err
		}
	}
	return nil
}

func (s *Step) checkTokens(p *Program, b Binding) error {
	if s.First[0] != 0 || int(s.First[b.Seqs]) != b.Tokens {
		return &StepError{"First", fmt.Sprintf("begins with %d and ends with %d; the step has %d tokens", s.First[0], s.First[b.Seqs], b.Tokens)}
	}
	for seq := range b.Seqs {
		from, to := s.First[seq], s.First[seq+1]
		if from > to || from < 0 || int(to) > b.Tokens {
			return &StepError{"First", fmt.Sprintf("sequence %d has rows %d to %d", seq, from, to)}
		}
		for t := from; t < to; t++ {
			switch id := s.Tokens[t]; {
			case int(id) >= p.Vocab:
				return &StepError{"Tokens", fmt.Sprintf("row %d is token %d of %d", t, id, p.Vocab)}
			case int(-1-id) >= len(s.Sampled):
				return &StepError{"Tokens", fmt.Sprintf("row %d refers to row %d of %d", t, -1-id, len(s.Sampled))}
			case int(s.Seq[t]) != seq:
				return &StepError{"Seq", fmt.Sprintf("row %d is of sequence %d, by First of %d", t, s.Seq[t], seq)}
			case s.Positions[t] < 0 || s.Positions[t] != s.Positions[from]+t-from:
				return &StepError{"Positions", fmt.Sprintf("row %d is at %d, its sequence begins at %d", t, s.Positions[t], s.Positions[from])}
			}
		}
	}
	return nil
}

// checkPages checks the pages that the step's positions need.
func (s *Step) checkPages(p *Program, b Binding, class int, kvBytes int64) error {
	c := p.Classes[class]
	if class >= len(s.Pages) || len(s.Pages[class]) < b.Seqs*c.MaxPages {
		return &StepError{"Pages", fmt.Sprintf("class %s has no table of %d×%d", c.Name, b.Seqs, c.MaxPages)}
	}
	for seq := range b.Seqs {
		if s.First[seq] == s.First[seq+1] {
			continue
		}
		if err := s.checkTable(c, p.Lookahead, class, seq, kvBytes); err != nil {
			return err
		}
	}
	return nil
}

// checkTable checks the page-table entries of one sequence that the step reads or stores to.
// Entries for lookahead positions after the step may be −1.
func (s *Step) checkTable(c KVClass, lookahead, class, seq int, kvBytes int64) error {
	table := s.Pages[class][seq*c.MaxPages:][:c.MaxPages]
	from, to := int(s.Positions[s.First[seq]]), int(s.Positions[s.First[seq+1]-1])+1
	page := func(entry, block int) error {
		if entry >= len(table) {
			return &StepError{"Positions", fmt.Sprintf("sequence %d needs %d pages of class %s, a table has %d", seq, entry+1, c.Name, c.MaxPages)}
		}
		if n := table[entry]; n < 0 || c.Address(n)+c.PageBytes() > kvBytes {
			return &StepError{"Pages", fmt.Sprintf("page %d of sequence %d is %d, outside of the arena of %d bytes", block, seq, n, kvBytes)}
		}
		return nil
	}
	if c.Snapshot {
		return s.checkSnapshots(c, table, seq, from, to, kvBytes)
	}
	if c.State != nil {
		return page(0, 0)
	}
	for block := c.FirstBlock(from); block*c.BlockSize < from; block++ {
		if err := page(c.Entry(block, from), block); err != nil {
			return err
		}
	}
	for block := from / c.BlockSize; block*c.BlockSize < to; block++ {
		if e := c.StoreEntry(block, to); e >= 0 {
			if err := page(e, block); err != nil {
				return err
			}
		}
	}
	if c.Window > 0 {
		return nil
	}
	for block := (to + c.BlockSize - 1) / c.BlockSize; block*c.BlockSize < to+lookahead && block < len(table); block++ {
		if table[block] >= 0 {
			if err := page(block, block); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Step) checkRow(p *Program, b Binding, r int) error {
	if s.Rows[r] < 0 || int(s.Rows[r]) >= b.Tokens {
		return &StepError{"Rows", fmt.Sprintf("row %d reads token row %d of %d", r, s.Rows[r], b.Tokens)}
	}
	if len(s.Sampling) == 0 { // rows are output without sampling
		return nil
	}
	row := &s.Sampling[r]
	wrong := func(format string, args ...any) error {
		return &StepError{fmt.Sprintf("Sampling[%d]", r), fmt.Sprintf(format, args...)}
	}
	tops, bias := len(s.TopIDs)/len(s.Rows), len(s.Bias)/len(s.Rows)
	switch {
	case row.Seq < 0 || int(row.Seq) >= b.Seqs:
		return wrong("sequence %d of %d", row.Seq, b.Seqs)
	case row.NumTop < 0 || int(row.NumTop) > tops:
		return wrong("%d top logprobs, at most %d", row.NumTop, tops)
	case row.NumBias < 0 || int(row.NumBias) > bias:
		return wrong("%d logit edits, at most %d", row.NumBias, bias)
	case row.Flags&UseTarget != 0 && (row.Target < 0 || int(row.Target) >= p.Vocab):
		return wrong("target %d of %d", row.Target, p.Vocab)
	case row.TopK < 0 || !(row.TopP >= 0) || !(row.MinP >= 0 && row.MinP <= 1) || !(row.Temperature >= 0):
		return wrong("top_k %d, top_p %g, min_p %g, temperature %g", row.TopK, row.TopP, row.MinP, row.Temperature)
	}
	for _, e := range s.Bias[r*bias:][:row.NumBias] {
		if e.Token < 0 || int(e.Token) >= p.Vocab {
			return wrong("edit of token %d of %d", e.Token, p.Vocab)
		}
	}
	var tokens int32
	if end := s.First[row.Seq+1]; end > s.First[row.Seq] {
		tokens = s.Positions[end-1] + 1
	}
	if row.PromptLen < 0 || row.HistoryLen < 0 || row.HistoryLen > tokens {
		return wrong("history of %d tokens, %d of them prompt; the sequence has %d", row.HistoryLen, row.PromptLen, tokens)
	}
	return nil
}
