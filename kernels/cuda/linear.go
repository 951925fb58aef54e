package cuda

import (
	"strings"

	"vapp.dev/kernels"
)

// Linear is one kernel of a product and its launch.
type Linear struct {
	Kernel  string
	Rows    int // of X in a block
	Panels  int // of W in a block
	Threads int
	Shared  int  // bytes
	Words   bool // how X is packed (PackArgs)
	Plain   bool // W and X lie row by row
	Library bool // no kernel: cuBLASLt is called, with LibraryArgs
	shares  shares
}

// shares is how a product may be split over its input features.
type shares struct {
	panels   int // of W that blocks are counted by
	steps    int // of a split at least
	resident int // blocks that a multiprocessor runs at once
}

// FewRows is the most rows that a kernel without tiles takes in a block: beyond, X would be
// read out of the second cache as often as W is out of memory.
const FewRows = 16

// ChooseLinear is the kernel for a format and a number of rows; ok is false where no
// kernel packs the format. The choice of a program is made once, by its bucket.
func ChooseLinear(f kernels.Format, rows int) (l Linear, ok bool) {
	if !Packs(f) {
		return Linear{}, false
	}
	return choose("linear_"+f.String(), f, rows, 512), true
}

// ChooseRounded is ChooseLinear where X is rounded to the numbers of W, with scales of its
// own (RowsPack): F8E4M3 and I8.
func ChooseRounded(f kernels.Format, rows int) (l Linear, ok bool) {
	if f != kernels.F8E4M3 && f != kernels.I8 {
		return Linear{}, false
	}
	return choose("linear_"+f.String()+"_x8", f, rows, 256), true
}

// TileRows is up to how many rows a product takes as long as reading its weights, whatever
// units multiply (H100: 295 operations a byte): tiles, which are of fewer features, share them
// out better.
const TileRows = 128

// Wide is l where the architecture has a kernel that is faster for so many rows: on sm_90a its
// warpgroups multiply 16-bit numbers, 8-bit floats, and blocks of 32 with a scale and no minimum.
func (l Linear) Wide(f kernels.Format, rows int, architecture string) Linear {
	name, tile := strings.CutSuffix(l.Kernel, "_tile")
	if !tile || rows <= TileRows || architecture != "sm_90a" {
		return l
	}
	panels, x := 8, 512
	switch f {
	case kernels.BF16, kernels.F16, kernels.MXFP4:
		panels = 16
	case kernels.F8E4M3, kernels.F8E5M2, kernels.Q8_0, kernels.Q4_0, kernels.IQ4_NL, kernels.Q5_0:
	default:
		return l
	}
	if strings.HasSuffix(name, "_x8") {
		x = 256
	}
	const stages, steps, tiles = 4, 2, 16
	w := PanelRows * int(f.Bytes(StepCols)) // of a step of a panel, scales of blocks among them
	return Linear{
		Kernel: name + "_wide", Rows: 8 * tiles, Panels: panels, Threads: 256, Shared: stages * steps * (panels*w + tiles*x), Words: true,
		shares: shares{panels, tileSteps, 1},
	}
}

// PlainRows says whether a matrix [out, in] of a format may lie row by row, as cuBLASLt takes it: of
// 16-bit numbers or of F8E4M3, in whole steps, with rows of the product that begin at multiples of 16
// bytes, and, of 8-bit numbers, features in multiples of 16.
func PlainRows(f kernels.Format, out, in int) bool {
	switch f {
	case kernels.BF16, kernels.F16:
		return in%StepCols == 0 && out%4 == 0
	case kernels.F8E4M3:
		return in%StepCols == 0 && out%16 == 0
	}
	return false
}

// BlocksAcross is how far apart the scales of two rows of blocks of 128 by 128 lie where cuBLASLt reads them: a
// multiple of 4.
func BlocksAcross(in int) int { return (in + 511) / 512 * 4 }

// ChoosePlain is the kernel for a matrix that lies row by row, or the library's product: few rows
// read it as kernels of panels do, more are cuBLASLt's. X is what RoundsTo says, for F8E4M3 that.
func ChoosePlain(f kernels.Format, rows int) Linear {
	const warps, least = 8, 4 // units of a warp
	name, unit := "linear_"+f.String(), 1
	if f == kernels.F8E4M3 {
		name, unit = name+"_x8", 2 // steps
	}
	if rows > FewRows {
		return Linear{Kernel: name + "_cublaslt", Rows: LibraryUnit, Plain: true, Library: true}
	}
	l := Linear{Kernel: name + "_plain_16", Rows: 16, Panels: 2, Threads: 32 * warps, Plain: true, shares: shares{2, warps * least * unit, 2}}
	if rows <= 8 {
		l.Kernel, l.Rows = name+"_plain_8", 8
	}
	l.Shared = warps * l.Panels * (l.Rows / 8) * 512
	return l
}

// LibraryUnit is what the rows of a product by cuBLASLt are rounded up to, so that there are few shapes,
// each of which has its algorithm from the start.
const LibraryUnit = 64

// tileSteps is how many steps a split of tiles has at least: some rings of stages.
const tileSteps = 16

// choose is the kernel among those of a name; tile is the bytes of 8 rows of X at a step.
func choose(name string, f kernels.Format, rows, tile int) Linear {
	p, _ := packings(f)
	resident := 1
	if pairs(f) {
		resident = 2
	}
	if rows > FewRows {
		const panels, mid, many, room = 8, 8, 16, 96 << 10
		ring := func(tiles, room int) int { // linear_tile
			stage := panels*quants(f) + tiles*tile
			return min(8, room/stage) * stage
		}
		if rows <= 8*mid {
			return Linear{Kernel: name + "_64", Rows: 8 * mid, Panels: panels, Threads: 256, Shared: ring(mid, room/2), shares: shares{panels, tileSteps, resident}}
		}
		return Linear{Kernel: name + "_tile", Rows: 8 * many, Panels: panels, Threads: 256, Shared: ring(many, room), shares: shares{panels, tileSteps, 1}}
	}
	const warps, least = 8, 4 // steps of a warp
	l := Linear{Kernel: name + "_16", Rows: 16, Panels: 2, Threads: 32 * warps, shares: shares{2, warps * max(least, p.unit), resident}}
	if narrow(f) {
		l.shares.panels = 4
	}
	if rows <= 8 {
		l.Kernel, l.Rows = name+"_8", 8
		l.Panels = l.shares.panels // X is read as often as four panels of 4 bits
	}
	l.Shared = warps * l.Panels * (l.Rows / 8) * 512
	return l
}

// pairs says that a multiprocessor runs two blocks of the kernels for up to 64 rows: what the
// .cu files ask of the compiler.
func pairs(f kernels.Format) bool {
	switch f {
	case kernels.BF16, kernels.F16, kernels.F8E4M3, kernels.F8E5M2, kernels.I8, kernels.MXFP4, kernels.Q8_0, kernels.Q4_0, kernels.IQ4_NL:
		return true
	}
	return false
}

func narrow(f kernels.Format) bool { return quants(f) < 384 }

// quants is the bytes of a step of a panel without its scales.
func quants(f kernels.Format) int {
	switch f {
	case kernels.BF16, kernels.F16:
		return 1024
	case kernels.F8E4M3, kernels.F8E5M2, kernels.I8, kernels.Q8_0:
		return 512
	case kernels.Q6_K:
		return 384
	case kernels.Q5_0, kernels.Q5_1, kernels.Q5_K:
		return 320
	case kernels.Q3_K:
		return 192
	case kernels.Q2_K:
		return 128
	}
	return 256
}

// Splits is over how many blocks the input features of a matrix are shared, besides the
// warps of one: so that a matrix of few features has work for every multiprocessor. Of kernels
// for few rows it depends on the format, the matrix and the device alone, so that a row's sum
// does not depend on how many rows there are; of tiles also on rows, the most that a launch has.
func (l Linear) Splits(out, in, rows, multiprocessors int) int {
	const most = 8
	blocks := (out + PanelRows*l.shares.panels - 1) / (PanelRows * l.shares.panels)
	if l.Rows > FewRows {
		blocks *= (rows + l.Rows - 1) / l.Rows
	}
	return max(1, min(most, Steps(in)/l.shares.steps, l.shares.resident*multiprocessors/blocks))
}

// Blocks is the grid: row blocks, feature blocks, splits.
func (l Linear) Blocks(out, rows, splits int) [3]int {
	return [3]int{(rows + l.Rows - 1) / l.Rows, (out + PanelRows*l.Panels - 1) / (PanelRows * l.Panels), splits}
}

// PartialBytes is the room that splits need for a number of rows, and how many counters.
func (l Linear) PartialBytes(out, rows, splits int) (bytes int64, counters int) {
	if splits <= 1 {
		return 0, 0
	}
	b := l.Blocks(out, rows, splits)
	return int64(splits) * int64(b[0]*b[1]) * int64(l.Panels*l.Rows/8) * 512, b[0] * b[1]
}
