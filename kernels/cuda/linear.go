package cuda

import "vapp.dev/kernels"

// Linear is one kernel of a product and its launch.
type Linear struct {
	Kernel  string
	Rows    int // of X in a block
	Panels  int // of W in a block
	Threads int
	Shared  int // bytes
}

// FewRows is the most rows that a kernel without tiles takes in a block: beyond, tiles
// read the weights less often.
const FewRows = 32

// ChooseLinear is the kernel for a format and a number of rows; ok is false where no
// kernel packs the format. The choice of a program is made once, by its bucket.
func ChooseLinear(f kernels.Format, rows int) (l Linear, ok bool) {
	if !Packs(f) {
		return Linear{}, false
	}
	l = Linear{Panels: 2, Threads: 256}
	name := "linear_" + f.String()
	switch {
	case rows <= 8:
		l.Kernel, l.Rows = name+"_8", 8
		if narrow(f) {
			l.Panels = 4 // X is read as often as four panels of 4 bits
		}
	case rows <= 16:
		l.Kernel, l.Rows = name+"_16", 16
	case rows <= FewRows:
		l.Kernel, l.Rows = name+"_32", 32
	default:
		const stages, panels, tiles = 4, 8, 16
		return Linear{Kernel: name + "_tile", Rows: 8 * tiles, Panels: panels, Threads: 256, Shared: stages * (panels*quants(f) + tiles*512)}, true
	}
	l.Shared = 8 * l.Panels * (l.Rows / 8) * 512
	return l, true
}

func narrow(f kernels.Format) bool { return quants(f) < 384 }

// quants is the bytes of a step of a panel without its scales.
func quants(f kernels.Format) int {
	switch f {
	case kernels.BF16, kernels.F16:
		return 1024
	case kernels.F8E4M3, kernels.F8E5M2, kernels.Q8_0:
		return 512
	case kernels.Q6_K:
		return 384
	}
	return 256
}

// Splits is over how many blocks the input features of a matrix are shared, besides the
// warps of one: so that a matrix of few features has work for every multiprocessor. It
// depends on the matrix and the device alone, so that a row's sum does not depend on how
// many rows there are. Tiles are never split.
func (l Linear) Splits(out, in, multiprocessors int) int {
	if l.Rows > FewRows {
		return 1
	}
	const warps, least = 8, 4 // steps of a warp at least
	blocks := (out + PanelRows*l.Panels - 1) / (PanelRows * l.Panels)
	most := max(1, in/StepCols/(warps*least))
	return min(most, max(1, 2*multiprocessors/blocks), 8)
}

// PartialBytes is the room that splits need for a number of rows, and how many counters.
func (l Linear) PartialBytes(out, rows, splits int) (bytes int64, counters int) {
	if splits <= 1 {
		return 0, 0
	}
	blocks := (out + PanelRows*l.Panels - 1) / (PanelRows * l.Panels) * ((rows + l.Rows - 1) / l.Rows)
	return int64(splits) * int64(blocks) * int64(l.Panels*l.Rows/8) * 512, blocks
}
