package backend

import "vapp.dev/kernels"

// drafts checks the ops of a head that proposes tokens.
func (c *checker) drafts(op Op) {
	f32, i32 := kernels.F32, kernels.I32
	switch o := op.(type) {
	case Drafted:
		c.value("Ids", o.Ids, i32, PerToken, 1)
		c.value("Out", o.Out, i32, PerToken, 1)
		c.that(o.Ids != o.Out, "Out is Ids")
	case Verify:
		c.value("Ids", o.Ids, i32, PerToken, 1)
		c.value("Kept", o.Kept, i32, PerSeq, 1)
	case GatherKept:
		x := c.like(o.X)
		c.value("X", o.X, x.Format, PerToken, 0)
		c.value("Kept", o.Kept, i32, PerSeq, 1)
		c.value("Y", o.Y, x.Format, PerSeq, x.Cols)
	case Propose:
		c.value("Logits", o.Logits, f32, PerSeq, c.p.Vocab)
		c.value("Ids", o.Ids, i32, PerSeq, 1)
		c.that(o.N >= 0 && o.N < o.Of, "proposal %d of %d", o.N, o.Of)
	default:
		c.grid(op)
	}
}

// ahead checks where an op's rows are, and says of what kind they are.
func (c *checker) ahead(a *Ahead) Rows {
	if a == nil {
		return PerToken
	}
	c.value("Ahead.Kept", a.Kept, kernels.I32, PerSeq, 1)
	c.that(a.By > 0, "rows are %d positions ahead", a.By)
	return PerSeq
}
