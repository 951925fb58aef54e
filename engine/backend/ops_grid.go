package backend

import "vapp.dev/kernels"

// Resample adds learned positions: to X [T,cols] the row of Table [Side·Side, cols]
// at each patch's place, where Table is a square grid that is stretched over the
// item's, corner to corner, and mixed between the four nearest (bilinear). Across and
// Down [T,1] I32 are the patches' columns and rows; the item's size is one more
// than the largest.
type Resample struct {
	X, Across, Down Value
	Table           WeightID
	Side            int
}

// Join is Y [L,n·cols]: n rows of X [T,cols] one after the other make a row, n
// being as many times as Y is wider than X.
type Join struct{ X, Y Value }

func (Resample) opName() string { return "resample" }
func (Join) opName() string     { return "join" }

// grid checks the ops of patches that lie in squares.
func (c *checker) grid(op Op) {
	f32, i32 := kernels.F32, kernels.I32
	switch o := op.(type) {
	case Resample:
		x := c.value("X", o.X, f32, PerToken, 0)
		c.value("Across", o.Across, i32, PerToken, 1)
		c.value("Down", o.Down, i32, PerToken, 1)
		c.that(o.Side > 0 && o.Side < 1<<15, "a grid of %d × %d", o.Side, o.Side)
		c.weight("Table", o.Table, Lookup, o.Side*o.Side, x.Cols)
	case Join:
		x := c.value("X", o.X, f32, PerToken, 0)
		y := c.value("Y", o.Y, f32, PerSample, 0)
		n := y.Cols / max(1, x.Cols)
		c.that(n > 0 && y.Cols%x.Cols == 0, "%d columns are no whole rows of %d", y.Cols, x.Cols)
		c.that(c.p.Bucket.Samples*n >= c.p.Bucket.Tokens, "%d rows of %d each for %d", c.p.Bucket.Samples, n, c.p.Bucket.Tokens)
	}
}
