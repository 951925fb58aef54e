package cuda

import (
	"fmt"

	"vapp.dev/kernels"
)

// A packed matrix is cut into panels of PanelRows output features, and these into steps of
// StepCols input features. weights.cuh describes the order within a step.
const (
	PanelRows = 16
	StepCols  = 32
)

// GateUpRow returns the row of a matrix that is row r of its panels, if gates and ups are its halves and a panel has 8 of
// each: so that one thread has a gate and its up (LinearArgs.Half). rows is a multiple of PanelRows.
func GateUpRow(rows, r int) int {
	const each = PanelRows / 2
	return r%PanelRows/each*(rows/2) + r/PanelRows*each + r%each
}

// packing describes how a format's panels are made from its blocks.
type packing struct {
	unit       int                                                          // steps whose scales are together
	pack       func(dst []byte, block func(row, unit int) []byte, unit int) // one unit of a panel
	numberless Numberless
}

// Numberless describes the codes of a format that are not finite numbers, which fragments
// cannot hold: of each Every bytes, byte At is such a code if its bits in Mask are Least or
// more. Every 0: there are none.
type Numberless struct{ Every, At, Mask, Least int32 }

// in reports whether b holds such a code.
func (n Numberless) in(b []byte) bool {
	for i := int(n.At); n.Every > 0 && i < len(b); i += int(n.Every) {
		if int32(b[i])&n.Mask >= n.Least {
			return true
		}
	}
	return false
}

func packings(f kernels.Format) (packing, bool) {
	switch f {
	case kernels.BF16, kernels.F16:
		return packing{unit: 1, pack: pack16}, true
	case kernels.I8:
		return packing{unit: 1, pack: pack8(0)}, true
	case kernels.F8E4M3:
		return packing{unit: 1, pack: pack8(0), numberless: Numberless{Every: 1, Mask: 0x7f, Least: 0x7f}}, true
	case kernels.F8E5M2:
		return packing{unit: 1, pack: pack8(0), numberless: Numberless{Every: 1, Mask: 0x7f, Least: 0x7c}}, true
	case kernels.Q8_0:
		return packing{unit: 1, pack: pack8(2)}, true
	case kernels.Q4_0, kernels.IQ4_NL:
		return packing{unit: 1, pack: pack4(2)}, true
	case kernels.Q4_1, kernels.I4:
		return packing{unit: 1, pack: pack4(4)}, true
	case kernels.Q5_0:
		return packing{unit: 1, pack: pack5(2)}, true
	case kernels.Q5_1:
		return packing{unit: 1, pack: pack5(4)}, true
	case kernels.MXFP4:
		return packing{unit: 1, pack: packMXFP4, numberless: Numberless{Every: 17, At: 16, Mask: 0xff, Least: 0xff}}, true
	case kernels.NVFP4:
		return packing{unit: 1, pack: packNVFP4, numberless: Numberless{Every: 9, At: 8, Mask: 0x7f, Least: 0x7f}}, true
	case kernels.Q2_K:
		return packing{unit: 8, pack: packQ2_K}, true
	case kernels.Q3_K:
		return packing{unit: 8, pack: packQ3_K}, true
	case kernels.Q4_K:
		return packing{unit: 8, pack: packQ4_K}, true
	case kernels.Q5_K:
		return packing{unit: 8, pack: packQ5_K}, true
	case kernels.Q6_K:
		return packing{unit: 8, pack: packQ6_K}, true
	}
	return packing{}, false
}

// Packs reports whether matrices of this format are packed in panels.
func Packs(f kernels.Format) bool {
	_, ok := packings(f)
	return ok
}

// PackedBytes returns the bytes of a matrix in panels, with rows padded to whole panels and
// columns to whole steps. The plan and Pack use it.
func PackedBytes(f kernels.Format, rows, cols int) int64 {
	up := func(n, unit int) int64 { return (int64(n) + int64(unit) - 1) / int64(unit) * int64(unit) }
	return up(rows, PanelRows) * f.Bytes(up(cols, StepCols))
}

// Pack writes src, [rows, cols] stored as f row by row, to dst, which has PackedBytes bytes.
// Rows and columns are padded with zeros. It fails if cols is not whole blocks, if kernels do
// not read the format in panels, or if a weight in an 8-bit float is NaN or infinite.
func Pack(f kernels.Format, rows, cols int, src, dst []byte) error {
	p, ok := packings(f)
	if !ok {
		return fmt.Errorf("cuda: no kernel multiplies %v in panels", f)
	}
	elems, _ := f.Block()
	if rows <= 0 || cols <= 0 || cols%elems != 0 {
		return fmt.Errorf("cuda: a %v matrix of %d×%d is not made of blocks of %d input features", f, rows, cols, elems)
	}
	row, unit := f.Bytes(int64(cols)), f.Bytes(int64(p.unit*StepCols))
	if int64(len(src)) != int64(rows)*row || int64(len(dst)) != PackedBytes(f, rows, cols) {
		return fmt.Errorf("cuda: %d source bytes and %d packed bytes do not fit a %v matrix of %d×%d", len(src), len(dst), f, rows, cols)
	}
	if p.numberless.in(src) {
		return fmt.Errorf("cuda: a weight of a %v matrix is NaN or infinite", f)
	}
	none, last := make([]byte, unit), make([]byte, PanelRows*unit)
	for row0 := 0; row0 < rows; row0 += PanelRows {
		block := func(r, u int) []byte {
			if row0+r >= rows {
				return none
			}
			at, end := int64(u)*unit, int64(u+1)*unit
			from := src[int64(row0+r)*row:][:row]
			if end <= row {
				return from[at:end]
			}
			short := last[int64(r)*unit:][:unit]
			clear(short[copy(short, from[at:]):])
			return short
		}
		for u := range (cols + p.unit*StepCols - 1) / (p.unit * StepCols) {
			n := PanelRows * unit
			p.pack(dst[:n], block, u)
			dst = dst[n:]
		}
	}
	return nil
}
