package cuda

import "vapp.dev/kernels"

// Rounding is what X becomes before a product, and how the kernel that does it is launched.
type Rounding struct {
	Format kernels.Format // BF16, F16, F8E4M3, I8
	Group  int            // columns that share a scale, of 8-bit numbers: 32 times a power of 2 up to 8; 0: a row has one
}

// RoundsTo is the rounding of X for W of a format that is multiplied as it is.
func RoundsTo(f kernels.Format) Rounding {
	if f == kernels.F16 {
		return Rounding{Format: kernels.F16}
	}
	return Rounding{Format: kernels.BF16}
}

// Source is where X comes from: what the kernel that packs it computes first.
type Source string

// The sources: the rows of X, those of the products of gate and up, those that an RMSNorm
// normalises.
const (
	FromRows Source = "linear"
	FromGLU  Source = "glu"
	FromNorm Source = "norm"
)

// Kernel is the one that packs X of a source.
func (r Rounding) Kernel(s Source) string { return string(s) + "_pack_" + r.Format.String() }

// byRow: a block is a row, because something depends on all of it.
func (r Rounding) byRow(s Source) bool { return r.narrow() || s == FromNorm }

func (r Rounding) narrow() bool { return r.Format == kernels.F8E4M3 || r.Format == kernels.I8 }

// Grid is the launch of Kernel: blocks, the second dimension being tiles of 8 rows, and
// threads of one.
func (r Rounding) Grid(s Source, rows, in int) (blocks [3]int, threads int) {
	tiles, steps := (rows+7)/8, Steps(in)
	if r.byRow(s) {
		return [3]int{8, tiles, 1}, min(512, (4*steps+31)/32*32)
	}
	return [3]int{(steps + 3) / 4, tiles, 1}, 128
}

// Steps is how many steps a row of X or W has.
func Steps(in int) int { return (in + StepCols - 1) / StepCols }

// GroupSteps is PackArgs.Group.
func (r Rounding) GroupSteps() int { return r.Group / StepCols }

// ScaleSteps is LinearArgs.XSteps: how many steps share a scale.
func (r Rounding) ScaleSteps(in int) int {
	if r.Group == 0 {
		return Steps(in)
	}
	return r.Group / StepCols
}

// Bytes is what packed X takes, and what its sums or scales do.
func (r Rounding) Bytes(rows, in int) (x, sums int64) {
	tiles, steps := int64(rows+7)/8, int64(Steps(in))
	if !r.narrow() {
		return tiles * steps * 512, tiles * steps * 32
	}
	per := int64(r.ScaleSteps(in))
	return tiles * steps * 256, tiles * ((steps + per - 1) / per) * 32
}
