package backend

import (
	"fmt"

	"vapp.dev/kernels"
)

// Fits returns a *ProgramError unless steps of this shape have buffers for everything that p
// verifies, proposes and outputs. A Device calls it in Compile.
func (p *Program) Fits(s StepShape) error {
	for i, op := range p.Ops {
		why := ""
		switch o := op.(type) {
		case Verify:
			if s.accepted() < p.Bucket.Seqs {
				why = fmt.Sprintf("it verifies proposals of %d sequences, Step.Accepted holds %d", p.Bucket.Seqs, s.accepted())
			}
		case Propose:
			if o.Of != s.Drafts || s.Seqs < p.Bucket.Seqs {
				why = fmt.Sprintf("it is one of %d for %d sequences, Step.Drafts has %d columns of %d", o.Of, p.Bucket.Seqs, s.Drafts, s.Seqs)
			}
		case OutputRows:
			if n := p.Values[o.X].Cols; n != s.OutputCols || s.Samples < p.Bucket.Samples {
				why = fmt.Sprintf("it outputs %d rows of %d, Step.Outputs holds %d of %d", p.Bucket.Samples, n, s.Samples, s.OutputCols)
			}
		case Adapt:
			if s.AdapterSlots != p.AdapterSlots {
				why = fmt.Sprintf("it has %d slots, Step.Adapters names %d", p.AdapterSlots, s.AdapterSlots)
			}
		case Merge:
			if !s.Items {
				why = "Step.Encoded, which it reads, is not in steps of this shape"
			} else if o.Next && s.inNext() == 0 {
				why = "Step.EncodedNext, which it reads, is not in steps of this shape"
			}
		case Attention:
			if o.Items && !s.Items {
				why = "Step.ItemEnd, which it reads, is not in steps of this shape"
			}
		case Sample:
			if s.OutputCols > 0 {
				why = "it draws tokens in a step that has no buffers for them"
			}
		}
		if why != "" {
			return &ProgramError{p.Name, i, OpName(op), why}
		}
	}
	return nil
}

// drafts checks the ops of a draft head.
func (c *checker) drafts(op Op) {
	f32, i32 := kernels.F32, kernels.I32
	switch o := op.(type) {
	case DraftInput:
		c.value("Ids", o.Ids, i32, PerToken, 1)
		c.value("Out", o.Out, i32, PerToken, 1)
		c.require(o.Ids != o.Out, "Out is Ids")
	case Verify:
		c.value("Ids", o.Ids, i32, PerToken, 1)
		c.value("AcceptedRow", o.AcceptedRow, i32, PerSeq, 1)
	case GatherAccepted:
		x := c.like(o.X)
		c.value("X", o.X, x.Format, PerToken, 0)
		c.value("AcceptedRow", o.AcceptedRow, i32, PerSeq, 1)
		c.value("Y", o.Y, x.Format, PerSeq, x.Cols)
	case Propose:
		c.value("Logits", o.Logits, f32, PerSeq, c.p.Vocab)
		c.value("Ids", o.Ids, i32, PerSeq, 1)
		c.require(o.N >= 0 && o.N < o.Of, "proposal %d of %d", o.N, o.Of)
	default:
		c.grid(op)
	}
}

// draftRows checks an op's DraftPosition and returns its row symbol: PerSeq with one, else
// PerToken.
func (c *checker) draftRows(a *DraftPosition) Rows {
	if a == nil {
		return PerToken
	}
	c.value("Draft.AcceptedRow", a.AcceptedRow, kernels.I32, PerSeq, 1)
	c.require(a.By > 0 && a.By <= c.p.Lookahead, "rows are %d positions ahead, the program allows %d", a.By, c.p.Lookahead)
	return PerSeq
}

// draftRowsOf also checks that the class keeps the positions that draft rows attend to.
func (c *checker) draftRowsOf(a *DraftPosition, k KVClass) Rows {
	c.require(a == nil || k.Window == 0, "draft positions in class %s, which keeps %d tokens", k.Name, k.Window)
	return c.draftRows(a)
}
