package cpu

import (
	"vapp.dev/kernels"
)

// Stack is the operands of one of the two products of a mixture of experts; X and Y are in the
// sorted order of picks.
type Stack struct {
	W, Bias, X, Y, Kernel uintptr
	Bytes, TileBytes      int64
	In, Out, Format, Tile int32
}

// Experts is the operands of an ExpertPhase, on rows [Row0, Row0+Most). GLU is the function of
// OpGLU. Work has WorkBytes for each part.
type Experts struct {
	X, IDs, Weights, Y                               uintptr
	GateUp, Down                                     Stack
	GLU, First, Before, Place                        uintptr
	Picked, Up, Act, Shared, Work                    uintptr
	WorkBytes                                        int64
	Symbol, Experts, Top, Cols, Width, Row0, Most, _ int32
	Activation                                       Activation
	_                                                int32
}

// ExpertRows is the number of rows of a mixture that are computed at a time. More rows take
// several rounds, so that the workspace is bounded.
const ExpertRows = 512

// ExpertShape is what the workspace of a mixture depends on: its weights, the largest number of
// rows, the picks of each row, and the number of experts.
type ExpertShape struct {
	GateUp, Down       Matrix // of one expert
	Rows, Top, Experts int
}

// ExpertWorkspace is the workspace of a mixture: offsets in what all threads share, its bytes,
// and the bytes of each thread; all multiples of 64.
type ExpertWorkspace struct {
	First, Before, Place, Picked, Up, Act, Shared, Bytes, Each int64
}

// Workspace returns the layout of the workspace. Layout must have accepted both matrices.
func (s ExpertShape) Workspace() (r ExpertWorkspace) {
	picks := int64(min(s.Rows, ExpertRows)) * int64(s.Top)
	take := func(n int64) int64 {
		at := r.Bytes
		r.Bytes += roundUp(n, 64)
		return at
	}
	r.First, r.Before, r.Place = take(4*int64(s.Experts+1)), take(4*int64(s.Experts)), take(4*picks)
	r.Picked = take(4 * picks * int64(s.GateUp.Cols))
	r.Up = take(4 * picks * int64(s.GateUp.Rows))
	r.Act = take(4 * picks * int64(s.Down.Cols))
	shared := int64(0)
	for _, m := range []Matrix{s.GateUp, s.Down} {
		tile, bytes := m.Tile()
		shared = max(shared, (picks/int64(tile)+min(picks, int64(s.Experts)))*bytes)
		_, each := LinearWorkspace(m.Variant, m.Format, int(picks), m.Cols, m.Rows, 1)
		r.Each = max(r.Each, roundUp(each, 64))
	}
	r.Shared = take(shared)
	return r
}

// Tile returns how many rows of x the kernel of m multiplies at once, and their bytes as
// OpLinearPrepare writes them, a multiple of 64.
func (m Matrix) Tile() (rows int, bytes int64) {
	if planes := integers(m.Variant, m.Format); planes > 0 {
		tile, row := integerTile(planes, m.Cols)
		return int(tile), roundUp(tile*row, 64)
	}
	if ok, outside := tiled(m.Variant, m.Format); ok {
		return amxRows, tiledRows(outside, m.Cols)
	}
	switch {
	case m.Variant == W8A8("amx"):
		return amxRows, amxRows * w8Row(m.Cols)
	case m.w8a8():
		return 1, w8Row(m.Cols)
	case m.Variant == "generic":
		return 1, 0
	case m.Variant == "amx" && m.Format != kernels.F32 && m.Format != kernels.F16:
		return amxRows, amxRows * 2 * roundUp(int64(m.Cols), amxK)
	case asBFMMLA(m.Variant, m.Format):
		return bfmmlaRows, roundUp(bfmmlaRows*bfmmlaBytes(m.Cols), 64)
	case asPairs(m.Variant, m.Format):
		rows = int(tileRows(m.Variant))
		return rows, roundUp(int64(rows)*pairBytes(m.Cols), 64)
	}
	rows = int(tileRows(m.Variant))
	return rows, roundUp(4*int64(rows)*int64(m.Cols), 64)
}
