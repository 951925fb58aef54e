package backend

import "vapp.dev/kernels"

// A vision tower is a program of its own. Bucket.Tokens is the number of patches of one item
// (an image, or a frame of a video), Bucket.Samples the number of encoded rows. A patch has
// two positions in the grid, so they are values instead of Step.Positions.

// Patches reads the item to encode. Pixels [T,cols] F32 are the colours of each patch, 0 to
// 1 (ItemInput.Colours of its bytes), times Scale plus Shift; Across and Down [T,1] I32 are its column and row in the grid.
type Patches struct {
	Pixels, Across, Down Value
	Scale, Shift         float32
	// Frames is how many frames a patch has; its colours are ordered by channel, frame,
	// row, column. 0: one frame, with the channels of a pixel together.
	Frames int
	// Square orders patches by squares of this many columns and rows; 0: row by row of
	// the grid.
	Square int
}

// AvgPool sets Y [L,cols] to the mean of each Size × Size square of patches of X
// [T,cols], times Scale. Squares are counted row by row of the grid; there are T/Size²
// of them.
type AvgPool struct {
	X, Across, Down, Y Value
	Size               int
	Scale              float32
}

// Standardize sets X [rows,cols] to (X − Mean) · Scale, in place; Mean and Scale are [cols].
type Standardize struct {
	X           Value
	Mean, Scale WeightID
}

// EncoderOutput marks X [L,cols] as the tower's result, which Merge inserts into the prompt.
type EncoderOutput struct{ X Value }

// Merge replaces the rows of X [T,cols] at an item's placeholder tokens with the item's
// encoded rows, as they are: the scale of embeddings (Gemma's √hidden) does not apply to them.
// Next means that a row belongs to its token's successor (DraftInput): Step.EncodedNext.
type Merge struct {
	X    Value
	Next bool
}

func (Patches) opName() string       { return "patches" }
func (AvgPool) opName() string       { return "avg_pool" }
func (Standardize) opName() string   { return "standardize" }
func (EncoderOutput) opName() string { return "encoder_output" }
func (Merge) opName() string         { return "merge" }

// vision checks the ops of towers.
func (c *checker) vision(op Op) {
	f32, i32 := kernels.F32, kernels.I32
	switch o := op.(type) {
	case Patches:
		c.value("Pixels", o.Pixels, f32, PerToken, 0)
		c.value("Across", o.Across, i32, PerToken, 1)
		c.value("Down", o.Down, i32, PerToken, 1)
	case AvgPool:
		x := c.value("X", o.X, f32, PerToken, 0)
		c.value("Across", o.Across, i32, PerToken, 1)
		c.value("Down", o.Down, i32, PerToken, 1)
		c.value("Y", o.Y, f32, PerSample, x.Cols)
		c.require(o.Size > 0 && c.p.Bucket.Samples*o.Size*o.Size >= c.p.Bucket.Tokens, "squares of %d × %d patches: %d rows for %d patches", o.Size, o.Size, c.p.Bucket.Samples, c.p.Bucket.Tokens)
	case Standardize:
		in := c.like(o.X)
		c.value("X", o.X, f32, in.Rows, 0)
		c.weight("Mean", o.Mean, Vector, 1, in.Cols)
		c.weight("Scale", o.Scale, Vector, 1, in.Cols)
	case EncoderOutput:
		c.value("X", o.X, f32, PerSample, 0)
	case Merge:
		c.value("X", o.X, f32, PerToken, 0)
	}
}
