package cuda

import "vapp.dev/kernels"

// Rounding is the format of X in a product, and the launch of the kernel that converts X.
type Rounding struct {
	Format kernels.Format // BF16, F16, F8E4M3, I8
	Group  int            // columns that share a scale, for 8-bit numbers: 32 times a power of 2 up to 8; 0: one scale for a row
}

// RoundsTo returns the rounding of X for a W of format f, without quantized activations.
func RoundsTo(f kernels.Format) Rounding {
	if f == kernels.F16 {
		return Rounding{Format: kernels.F16}
	}
	return Rounding{Format: kernels.BF16}
}

// ReadsSums reports whether products with a format read the sums of X for each step: for its minima.
func ReadsSums(f kernels.Format) bool {
	switch f {
	case kernels.Q4_1, kernels.Q5_1, kernels.I4, kernels.Q4_K, kernels.Q5_K:
		return true
	}
	return false
}

// Source is what the packing kernel computes first.
type Source string

// The sources: the rows of X, those beside which keys and values are stored, rows of gated activations, rows that an
// RMSNorm normalizes, those with other norms before it, and rows whose segments are normalized.
const (
	FromRows      Source = "linear"
	FromAttention Source = "store"
	FromGLU       Source = "glu"
	FromNorm      Source = "norm"
	FromChain     Source = "chain"
	FromHeads     Source = "heads"
)

// Kernel returns the kernel that packs X of a source.
func (r Rounding) Kernel(s Source) string { return string(s) + "_pack_" + r.Format.String() }

// byRow reports whether a block takes a whole row, because a result depends on all of it.
func (r Rounding) byRow(s Source) bool {
	return r.Narrow() || s == FromNorm || s == FromChain || s == FromHeads
}

// Narrow reports whether X has 8 bits, with scales.
func (r Rounding) Narrow() bool { return r.Format == kernels.F8E4M3 || r.Format == kernels.I8 }

// Grid returns the launch of Kernel, in a list of up to most rows: blocks (the second dimension is tiles of 8 rows) and
// threads.
func (r Rounding) Grid(s Source, rows, in, most int) (blocks [3]int, threads int) {
	tiles, steps := (rows+7)/8, Steps(in)
	if r.byRow(s) {
		return [3]int{8, tiles, 1}, RowThreads(in, most)
	}
	return [3]int{(steps + 3) / 4, tiles, 1}, 128
}

// The threads of a row. Up to fewRows rows, all of a row is in flight at once. In lists of more rows a thread takes several
// turns, because what it does once, as meeting the others, takes as long as two turns.
const (
	rowThreads, manyRowsThreads = 512, 128
	fewRows                     = 64
	turns                       = 8 // of manyRowsThreads; wider rows have twice as many threads
)

// RowThreads returns the threads of norm_rows and of the kernels that pack whole rows, in a list of up to most rows. A row has
// the same sums in all of them.
func RowThreads(in, most int) int {
	threads := rowThreads
	if most > fewRows {
		for threads = manyRowsThreads; threads < rowThreads && Steps(in) > turns*threads/4; threads *= 2 {
		}
	}
	return min(threads, (4*Steps(in)+31)/32*32)
}

// Steps returns the number of steps of a row of X or W.
func Steps(in int) int { return (in + StepCols - 1) / StepCols }

// GroupSteps returns PackArgs.Group.
func (r Rounding) GroupSteps() int { return r.Group / StepCols }

// ScaleSteps returns LinearArgs.XSteps: the steps that share a scale.
func (r Rounding) ScaleSteps(in int) int {
	if r.Group == 0 {
		return Steps(in)
	}
	return r.Group / StepCols
}

// Bytes returns the bytes of packed X, and of its sums or scales.
func (r Rounding) Bytes(rows, in int) (x, sums int64) {
	tiles, steps := int64(rows+7)/8, int64(Steps(in))
	if !r.Narrow() {
		return tiles * steps * 512, tiles * steps * 32
	}
	per := int64(r.ScaleSteps(in))
	return tiles * steps * 256, tiles * ((steps + per - 1) / per) * 32
}
