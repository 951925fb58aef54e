package ref

import (
	"fmt"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/ref"
)

type sample struct{ backend.Sample }

func (o sample) units(l *launch) int { return l.b.Samples }

// run samples row r as its SampleRow specifies.
func (o sample) run(l *launch, worker, r int) error {
	p, s, row, work := l.e.p, l.s, &l.s.Sampling[r], l.workspace(worker)
	a := ref.SampleArgs{
		Logits: rowOf(l.floats(o.Logits), r, p.Vocab), Prompt: int(row.PromptLen),
		Repetition: row.Repetition, Frequency: row.Frequency, Presence: row.Presence,
		Temperature: row.Temperature, MinP: row.MinP, TopP: row.TopP, TopK: int(row.TopK),
		Uniform:   backend.Random(row.Seed, row.Position),
		UseTarget: row.Flags&backend.UseTarget != 0, Target: row.Target, Logprobs: row.Flags&backend.WantLogprob != 0,
		Workspace: ref.SampleWorkspace{
			Raw: take[float32](work, p.Vocab, 4), Order: take[int32](work, p.Vocab, 4), Counts: take[int32](work, p.Vocab, 4),
		},
	}
	clear(a.Workspace.Counts)
	if row.Flags&backend.UseGrammar != 0 {
		a.Grammar = rowOf(s.Grammar, r, s.Words)
	}
	if row.Flags&backend.UseAllowed != 0 {
		a.Allowed = rowOf(s.Allowed, r, s.Words)
	}
	if n := row.NumBias; n > 0 {
		b := rowOf(s.Bias, r, len(s.Bias)/len(s.Rows))
		a.Bias = unsafe.Slice((*ref.Bias)(unsafe.Pointer(&b[0])), n)
	}
	if n := int(row.HistoryLen); n > 0 && a.Penalizes() {
		a.History = take[int32](work, n, 4)
		if err := o.history(l, int(row.Seq), a.History); err != nil {
			return err
		}
	}
	width := len(s.TopIDs) / len(s.Rows)
	if n := int(row.NumTop); a.Logprobs && n > 0 {
		n = min(n, p.Vocab)
		a.TopIDs, a.TopProbs = rowOf(s.TopIDs, r, width)[:n], rowOf(s.TopProbs, r, width)[:n]
	}
	out := ref.Sample(a)
	s.Sampled[r], s.Status[r] = out.Token, backend.RowOK
	if out.Token < 0 {
		s.Status[r] = backend.RowNaN
	}
	s.Logprob[r], s.Rank[r] = out.Logprob, out.Rank
	return nil
}

// history reads the first tokens of a sequence from the token plane.
func (o sample) history(l *launch, seq int, out []int32) error {
	c := l.e.p.Classes[o.Class]
	for i := range out {
		page := l.s.Pages[o.Class][seq*c.MaxPages+i/c.BlockSize]
		out[i] = l.plane(o.Class, page)[i%c.BlockSize]
		if out[i] < 0 || int(out[i]) >= l.e.p.Vocab {
			return fmt.Errorf("sequence %d: the token plane of page %d holds %d at position %d, the vocabulary has %d", seq, page, out[i], i, l.e.p.Vocab)
		}
	}
	return nil
}
