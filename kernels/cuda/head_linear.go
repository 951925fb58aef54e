package cuda

import "vapp.dev/kernels"

// HeadLinear is a kernel of products by head and its launch.
type HeadLinear struct {
	Kernel         string
	Rows, Features int // of a block
	Shared         int // bytes
}

// ChooseHeadLinear returns the kernel for a stack of matrices in F32, F16 or BF16 and that many
// rows; ok is false for other formats. It has blocks of 256 threads: by rows, by features, and
// by heads. A row's sum is the same with each.
func ChooseHeadLinear(f kernels.Format, rows int) (l HeadLinear, ok bool) {
	l, steps := HeadLinear{"head_linear_" + f.String() + "_64", 64, 128, 0}, 2
	switch {
	case f == kernels.F32:
		return HeadLinear{"head_linear_f32", 4, 8, 0}, true
	case f != kernels.F16 && f != kernels.BF16:
		return HeadLinear{}, false
	case rows <= DecodeRows:
		l.Kernel, l.Rows, steps = "head_linear_"+f.String()+"_16", 16, 4
	}
	l.Shared = 2 * l.Rows * (steps*StepCols + 8)
	return l, true
}
