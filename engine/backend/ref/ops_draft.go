package ref

import (
	"vapp.dev/engine/backend"
	"vapp.dev/kernels/ref"
)

type draftInput struct{ backend.DraftInput }

func (draftInput) units(*launch) int { return 1 }
func (o draftInput) run(l *launch, _, _ int) error {
	ref.DraftInput(l.draftRows(o.Ids), l.ints(o.Out))
	return nil
}

// draftRows returns the step's rows with ids as their tokens.
func (l *launch) draftRows(ids backend.Value) ref.DraftRows {
	return ref.DraftRows{Ids: l.ints(ids), First: l.s.First[:l.b.Seqs+1], Rows: l.s.Rows[:l.b.Samples], Sampled: l.s.Sampled}
}

type verify struct{ backend.Verify }

func (verify) units(*launch) int { return 1 }
func (o verify) run(l *launch, _, _ int) error {
	ref.Verify(l.draftRows(o.Ids), l.ints(o.AcceptedRow), l.s.Accepted)
	return nil
}

type gatherAccepted struct{ backend.GatherAccepted }

func (o gatherAccepted) units(l *launch) int { return l.b.Seqs }
func (o gatherAccepted) run(l *launch, _, seq int) error {
	n := elementBytes(l.e.p.Values[o.X].Format, l.cols(o.X))
	y := rowOf(l.bytes(o.Y), seq, n)
	if t := int(l.ints(o.AcceptedRow)[seq]); t >= 0 {
		copy(y, rowOf(l.bytes(o.X), t, n))
	} else {
		clear(y)
	}
	return nil
}

type propose struct{ backend.Propose }

func (o propose) units(l *launch) int { return l.b.Seqs }
func (o propose) run(l *launch, _, seq int) error {
	id := ref.Largest(rowOf(l.floats(o.Logits), seq, l.cols(o.Logits)))
	l.ints(o.Ids)[seq] = id
	l.s.Drafts[seq*o.Of+o.N] = id
	return nil
}
