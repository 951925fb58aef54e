package backend

import "vapp.dev/kernels"

// Resample adds learned position embeddings to X [T,cols]. Table [Side·Side, cols] is a
// square grid; it is stretched over the item's grid, corner to corner, and interpolated
// between the four nearest entries (bilinear). Across and Down [T,1] I32 are the patches'
// columns and rows; the item's size is one more than the largest.
type Resample struct {
	X, Across, Down Value
	Table           WeightID
	Side            int
}

// Join sets each row of Y [L,n·cols] to n consecutive rows of X [T,cols]; n is the ratio of
// their widths.
type Join struct{ X, Y Value }

func (Resample) opName() string { return "resample" }
func (Join) opName() string     { return "join" }

// grid checks the ops of this file.
func (c *checker) grid(op Op) {
	f32, i32 := kernels.F32, kernels.I32
	switch o := op.(type) {
	case Resample:
		x := c.value("X", o.X, f32, PerToken, 0)
		c.value("Across", o.Across, i32, PerToken, 1)
		c.value("Down", o.Down, i32, PerToken, 1)
		c.require(o.Side > 0 && o.Side < 1<<15, "a grid of %d × %d", o.Side, o.Side)
		c.weight("Table", o.Table, Lookup, o.Side*o.Side, x.Cols)
	case Join:
		x := c.value("X", o.X, f32, PerToken, 0)
		y := c.value("Y", o.Y, f32, PerSample, 0)
		n := y.Cols / max(1, x.Cols)
		c.require(n > 0 && y.Cols%x.Cols == 0, "%d columns are no whole rows of %d", y.Cols, x.Cols)
		c.require(c.p.Bucket.Samples*n >= c.p.Bucket.Tokens, "%d rows of %d each for %d", c.p.Bucket.Samples, n, c.p.Bucket.Tokens)
	}
}
