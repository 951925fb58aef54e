package backend

import "vapp.dev/kernels"

// latent checks the ops of latent attention.
func (c *checker) latent(op Op) {
	f32 := kernels.F32
	switch o := op.(type) {
	case LatentRope:
		rows := c.like(o.KV).Rows
		c.require(rows != PerSample, "rows are sampled rows, not tokens or sequences")
		c.require(o.Heads > 0 && o.Nope >= 0 && o.Rank > 0 && o.Rotary > 0 && o.Rotary%2 == 0, "%d heads of %d+%d, %d latent numbers", o.Heads, o.Nope, o.Rotary, o.Rank)
		c.value("Q", o.Q, f32, rows, o.Heads*(o.Nope+o.Rotary))
		c.value("KV", o.KV, f32, rows, o.Rank+o.Rotary)
		c.value("Angles", o.Angles, f32, rows, o.Rotary)
		c.value("Query", o.Query, f32, rows, o.Heads*(o.Rank+o.Rotary))
		f := c.like(o.K).Format
		c.require(storable(f), "K is %v; f32, f16, bf16 and 8-bit floats can be stored", f)
		c.value("K", o.K, f, rows, o.Rotary)
		c.value("V", o.V, f, rows, o.Rank)
		c.weight("Norm", o.Norm, Vector, 1, o.Rank)
		c.require(o.Query != o.Q && o.Query != o.KV, "Query is Q or KV")
	case HeadLinear:
		y := c.like(o.Y)
		c.value("Y", o.Y, f32, y.Rows, 0)
		x := c.value("X", o.X, f32, y.Rows, 0)
		w := c.weight("W", o.W, Multiply, 0, 0)
		c.require(o.Heads > 0 && w.Experts == o.Heads, "a stack of %d matrices for %d heads", w.Experts, o.Heads)
		c.require(PlainFloats(w.Stored()), "W (%s) is %v; heads are multiplied with f32, f16 and bf16", w.Name, w.Stored())
		if c.why == "" {
			c.require(x.Cols%o.Heads == 0 && y.Cols%o.Heads == 0 && w.Cols <= x.Cols/o.Heads && w.Rows <= y.Cols/o.Heads,
				"matrices of %d×%d for %d heads in %d and %d columns", w.Rows, w.Cols, o.Heads, y.Cols, x.Cols)
		}
		c.require(o.X != o.Y, "X is Y")
	}
}
