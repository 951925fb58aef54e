package cuda

import (
	"fmt"
	"strings"

	"vapp.dev/kernels"
)

// Linear is a kernel of a product and its launch.
type Linear struct {
	Kernel  string
	Rows    int // of X in a block
	Panels  int // of W in a block
	Threads int
	Shared  int  // bytes
	Words   bool // how X is packed (PackArgs)
	Plain   bool // W and X are stored row by row
	Library bool // no kernel: cuBLASLt is called, with LibraryArgs
	// Of a product that walks (Walk): the columns that are loaded at once, and how many of these stages the second of a block's warpgroups is
	// behind the first; else 0.
	StageCols, Behind int
	shares            shares
}

// shares describes how a product may be split over its input features.
type shares struct {
	panels   int // panels of W of a block, for counting blocks
	steps    int // smallest number of steps of a split
	resident int // blocks that a multiprocessor runs at once
}

// DecodeRows is the largest number of rows of a block without tiles. With more rows, X would be
// read from the second cache as often as W from memory.
const DecodeRows = 16

// ChooseLinear returns the kernel for a format and a number of rows; ok is false if the format
// is not packed in panels. A program chooses once for each bucket.
func ChooseLinear(f kernels.Format, rows int) (l Linear, ok bool) {
	if !Packs(f) {
		return Linear{}, false
	}
	return choose("linear_"+f.String(), f, rows, 512), true
}

// ChooseRounded is ChooseLinear for X that is rounded to the format of W with scales of its own
// (RowsPack): F8E4M3 and I8.
func ChooseRounded(f kernels.Format, rows int) (l Linear, ok bool) {
	if f != kernels.F8E4M3 && f != kernels.I8 {
		return Linear{}, false
	}
	return choose("linear_"+f.String()+"_x8", f, rows, 256), true
}

// TileRows is the number of rows up to which a product with 16-bit weights is bound by reading
// them, whatever units multiply (H100: 295 operations a byte). Up to it tiles are better: their
// blocks have fewer features and balance better.
const TileRows = 128

// Wide returns the faster kernel for that many rows if the architecture has one, else l. On
// sm_90a the warpgroups multiply 16-bit numbers, 8-bit floats, and blocks of 32 with a scale
// and no minimum. Quantized weights are converted once for all rows of a block, so warpgroups
// have fewer instructions from 9 rows on; with X in E4M3 nothing is converted, and they have for
// every number of rows.
func (l Linear) Wide(f kernels.Format, rows int, architecture string) Linear {
	if architecture != "sm_90a" {
		return l
	}
	name := strings.TrimRight(l.Kernel, "0123456789")
	name = strings.TrimSuffix(strings.TrimSuffix(name, "tile"), "_")
	switch {
	case f == kernels.BF16 || f == kernels.F16:
		if rows <= TileRows {
			return l
		}
	case rows <= 8 && !strings.HasSuffix(name, "_x8"):
		return l
	}
	for _, most := range []int{16, 32, 64, 128} {
		if g, ok := group(name, f, most); ok && (rows <= most || most == 128) {
			return g
		}
	}
	return l
}

// group returns the kernel of warpgroups with that many rows in a block: of linear_mid.cu, or of
// linear_wide.cu for 128. Shape in linear_wide.cuh has the same sizes. ok is false if there is none.
func group(name string, f kernels.Format, rows int) (l Linear, ok bool) {
	panels, steps, ring, resident, x := 8, 4, 112<<10, 2, 512
	switch f {
	case kernels.F8E4M3, kernels.Q8_0, kernels.Q4_0, kernels.IQ4_NL:
	case kernels.BF16, kernels.F16, kernels.F8E5M2, kernels.Q5_0: // many rows alone
		if rows < 128 {
			return Linear{}, false
		}
		if f == kernels.BF16 || f == kernels.F16 {
			panels = 16
		}
	case kernels.MXFP4:
		panels = 16
	default:
		return Linear{}, false
	}
	if panels == 16 && rows >= 64 {
		steps = 2
	}
	if strings.HasSuffix(name, "_x8") {
		x = 256
	}
	name = fmt.Sprintf("%s_mid_%d", name, rows)
	if rows == 128 {
		name, ring, resident = strings.TrimSuffix(name, "_mid_128")+"_wide", 216<<10, 1
	}
	stage := steps * (panels*PanelRows*int(f.Bytes(StepCols)) + rows/8*x)
	if x == 256 && rows == 128 { // with the scales of X
		stage += rows * 4
	}
	return Linear{
		Kernel: name, Rows: rows, Panels: panels, Threads: 256, Shared: min(8, ring/stage) * stage, Words: true,
		shares: shares{panels, tileSteps, resident},
	}, true
}

// GatesNarrow reports whether the kernel can round what it gates to 8 bits (LinearArgs.GatedScales), for a product that takes
// X as to. counters is how many of LinearArgs.GatedArrived that needs, of out features and up to rows rows.
func (l Linear) GatesNarrow(to Rounding, out, rows int) (counters int, ok bool) {
	if !l.Words || !strings.Contains(l.Kernel, "_x8_") || to != (Rounding{kernels.F8E4M3, 128}) || out%(2*to.Group) != 0 {
		return 0, false
	}
	return (rows + l.Rows - 1) / l.Rows * (out / (2 * to.Group)), true
}

// Picks returns the kernel, with PicksArgs, that multiplies rows of experts by the order of places; ok is false if there is none.
// Tiles of 128 rows multiply by 64 where an expert has no more rows for them.
func (l Linear) Picks() (p Linear, ok bool) {
	name, ok := strings.CutSuffix(l.Kernel, "_wide")
	switch at := strings.Index(l.Kernel, "_mid_"); {
	case strings.Contains(l.Kernel, "_x8_") || !strings.HasPrefix(l.Kernel, "linear_"):
		return l, false
	case ok: // Ring in linear_picks.cu has the same sizes
		const most, places = 208 << 10, 4*256*16 + 256 + 12*288 // of stages; of what is gated, barriers and walks
		f, _ := kernels.Parse(strings.TrimPrefix(name, "linear_"))
		steps := 4
		if l, _ = group(name, f, 128); l.Panels == 16 {
			steps = 2
		}
		stage := steps * (l.Panels*PanelRows*int(f.Bytes(StepCols)) + l.Rows/8*512)
		l.Kernel, l.Threads, l.Shared = name+"_picks_wide", 384, min(8, most/stage)*stage+places
		l.StageCols, l.Behind = steps*StepCols, min(8, most/stage)/2-1
	case at >= 0:
		l.Kernel, ok = l.Kernel[:at]+"_picks"+l.Kernel[at:], true
	}
	return l, ok
}

// PlainRows reports whether a matrix [out, in] of a format may be stored row by row, as
// cuBLASLt takes it: 16-bit numbers or F8E4M3 in whole steps. Rows of the product must begin at
// multiples of 16 bytes; for 8-bit numbers, features must be a multiple of 16.
func PlainRows(f kernels.Format, out, in int) bool {
	switch f {
	case kernels.BF16, kernels.F16:
		return in%StepCols == 0 && out%4 == 0
	case kernels.F8E4M3:
		return in%StepCols == 0 && out%16 == 0
	}
	return false
}

// BlocksAcross returns the distance between the scales of two rows of 128×128 blocks, as
// cuBLASLt reads them: a multiple of 4.
func BlocksAcross(in int) int { return (in + 511) / 512 * 4 }

// ChoosePlain returns the kernel for a matrix stored row by row: an own kernel for few rows,
// else cuBLASLt's product. X has the format of RoundsTo; for F8E4M3 that is F8E4M3.
func ChoosePlain(f kernels.Format, rows int) Linear {
	const warps, least = 8, 4 // units of a warp
	name, unit := "linear_"+f.String(), 1
	if f == kernels.F8E4M3 {
		name, unit = name+"_x8", 2 // steps
	}
	if rows > DecodeRows {
		return Linear{Kernel: name + "_cublaslt", Rows: LibraryUnit, Plain: true, Library: true}
	}
	l := Linear{Kernel: name + "_plain_16", Rows: 16, Panels: 2, Threads: 32 * warps, Plain: true, shares: shares{2, warps * least * unit, 2}}
	if rows <= 8 {
		l.Kernel, l.Rows = name+"_plain_8", 8
	}
	l.Shared = warps * l.Panels * (l.Rows / 8) * 512
	return l
}

// LibraryUnit is the multiple to which the rows of a product by cuBLASLt are rounded up. So
// there are few shapes, and the algorithm of each is chosen at the start.
const LibraryUnit = 64

// tileSteps is the smallest number of steps of a split of tiles: several rings of stages.
const tileSteps = 16

// choose returns one of the kernels of a name; tile is the bytes of 8 rows of X at a step.
func choose(name string, f kernels.Format, rows, tile int) Linear {
	p, _ := packings(f)
	resident := 1
	if pairs(f) {
		resident = 2
	}
	if rows > DecodeRows {
		const panels, mid, many, ringBytes = 8, 8, 16, 96 << 10
		ring := func(tiles, bytes int) int { // linear_tile
			stage := panels*quants(f) + tiles*tile
			return min(8, bytes/stage) * stage
		}
		if rows <= 8*mid {
			return Linear{Kernel: name + "_64", Rows: 8 * mid, Panels: panels, Threads: 256, Shared: ring(mid, ringBytes/2), shares: shares{panels, tileSteps, resident}}
		}
		return Linear{Kernel: name + "_tile", Rows: 8 * many, Panels: panels, Threads: 256, Shared: ring(many, ringBytes), shares: shares{panels, tileSteps, 1}}
	}
	const warps, least = 8, 4 // steps of a warp
	l := Linear{Kernel: name + "_16", Rows: 16, Panels: 2, Threads: 32 * warps, shares: shares{2, warps * max(least, p.unit), resident}}
	if narrow(f) {
		l.shares.panels = 4
	}
	if rows <= 8 {
		l.Kernel, l.Rows = name+"_8", 8
		l.Panels = l.shares.panels // with 4 bits, X is read as often as W
	}
	l.Shared = warps * l.Panels * (l.Rows / 8) * 512
	return l
}

// pairs reports whether a multiprocessor runs two blocks of the kernels for up to 64 rows: the
// .cu files request that from the compiler.
func pairs(f kernels.Format) bool {
	switch f {
	case kernels.BF16, kernels.F16, kernels.F8E4M3, kernels.F8E5M2, kernels.I8, kernels.MXFP4, kernels.Q8_0, kernels.Q4_0, kernels.IQ4_NL:
		return true
	}
	return false
}

func narrow(f kernels.Format) bool { return quants(f) < 384 }

// quants returns the bytes of a step of a panel, without its scales.
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

// Splits returns the number of blocks among which the input features are divided, besides the
// warps of a block, so that a matrix of few features has work for every multiprocessor. For
// kernels for few rows it depends only on the format, the matrix and the device, so that a
// row's sum does not depend on the number of rows. For tiles it also depends on rows, the
// largest number of a launch.
func (l Linear) Splits(out, in, rows, multiprocessors int) int {
	const most = 8
	blocks := (out + PanelRows*l.shares.panels - 1) / (PanelRows * l.shares.panels)
	if l.Rows > DecodeRows {
		blocks *= (rows + l.Rows - 1) / l.Rows
	}
	return max(1, min(most, Steps(in)/l.shares.steps, l.shares.resident*multiprocessors/blocks))
}

// Blocks returns the grid: row blocks, feature blocks, splits.
func (l Linear) Blocks(out, rows, splits int) [3]int {
	return [3]int{(rows + l.Rows - 1) / l.Rows, (out + PanelRows*l.Panels - 1) / (PanelRows * l.Panels), splits}
}

// Walks reports whether the grid is fixed, as Walk has it.
func (l Linear) Walks() bool { return l.StageCols > 0 }

// Walk returns the grid of a product that walks, for out features and blocks of rows: at most a block on each multiprocessor, which take all
// tiles in turns. A block has the shared memory of a multiprocessor for itself.
func (l Linear) Walk(out, rows, multiprocessors int) [3]int {
	b := l.Blocks(out, rows, 1)
	return [3]int{min(b[0]*b[1], multiprocessors), 1, 1}
}

// PartialBytes returns the bytes and the number of counters that splits need for a number of
// rows.
func (l Linear) PartialBytes(out, rows, splits int) (bytes int64, counters int) {
	if splits <= 1 {
		return 0, 0
	}
	b := l.Blocks(out, rows, splits)
	return int64(splits) * int64(b[0]*b[1]) * int64(l.Panels*l.Rows/8) * 512, b[0] * b[1]
}
