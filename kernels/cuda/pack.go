package cuda

import (
	"fmt"

	"vapp.dev/kernels"
)

// A packed matrix is panels of PanelRows output features, and of those steps of StepCols
// input features: see weights.cuh for the order within a step.
const (
	PanelRows = 16
	StepCols  = 32
)

// packing is how a format's panels are made of its blocks.
type packing struct {
	unit int                                                          // steps whose scales lie together
	pack func(dst []byte, block func(row, unit int) []byte, unit int) // one unit of a panel
	nans func(block []byte) bool                                      // codes that fragments cannot hold
}

func packings(f kernels.Format) (packing, bool) {
	switch f {
	case kernels.BF16, kernels.F16:
		return packing{unit: 1, pack: pack16}, true
	case kernels.F8E4M3:
		return packing{unit: 1, pack: pack8(0), nans: func(b []byte) bool { return any7f(b, 0x7f) }}, true
	case kernels.F8E5M2:
		return packing{unit: 1, pack: pack8(0), nans: func(b []byte) bool { return any7f(b, 0x7c) }}, true
	case kernels.Q8_0:
		return packing{unit: 1, pack: pack8(2)}, true
	case kernels.Q4_0:
		return packing{unit: 1, pack: pack4(2)}, true
	case kernels.Q4_1:
		return packing{unit: 1, pack: pack4(4)}, true
	case kernels.MXFP4:
		return packing{unit: 1, pack: packMXFP4}, true
	case kernels.Q4_K:
		return packing{unit: 8, pack: packQ4_K}, true
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

// PackedBytes is what a matrix takes in panels: rows round up to whole panels, and the
// columns of plain formats to whole steps.
func PackedBytes(f kernels.Format, rows, cols int) int64 {
	up := func(n, unit int) int64 { return int64((n + unit - 1) / unit * unit) }
	return up(rows, PanelRows) * f.Bytes(up(cols, StepCols))
}

// Pack writes src, [rows, cols] stored as f row by row, to dst, which has PackedBytes
// bytes. Rows behind the last are zeros. It fails where cols are no whole steps or blocks,
// where the format is not one that kernels read in panels, and on a weight that is NaN or
// infinite in an 8-bit float.
func Pack(f kernels.Format, rows, cols int, src, dst []byte) error {
	p, ok := packings(f)
	if !ok {
		return fmt.Errorf("cuda: no kernel multiplies %v in panels", f)
	}
	wide := p.unit * StepCols
	if rows <= 0 || cols <= 0 || cols%wide != 0 {
		return fmt.Errorf("cuda: a %v matrix of %d×%d is not made of %d input features each", f, rows, cols, wide)
	}
	row, unit := f.Bytes(int64(cols)), f.Bytes(int64(wide))
	if int64(len(src)) != int64(rows)*row || int64(len(dst)) != PackedBytes(f, rows, cols) {
		return fmt.Errorf("cuda: %d bytes to %d are no %v matrix of %d×%d", len(src), len(dst), f, rows, cols)
	}
	if p.nans != nil && p.nans(src) {
		return fmt.Errorf("cuda: a weight of a %v matrix is no finite number", f)
	}
	none := make([]byte, unit)
	for row0 := 0; row0 < rows; row0 += PanelRows {
		block := func(r, u int) []byte {
			if row0+r >= rows {
				return none
			}
			at := int64(row0+r)*row + int64(u)*unit
			return src[at : at+unit]
		}
		for u := range cols / wide {
			n := PanelRows * unit
			p.pack(dst[:n], block, u)
			dst = dst[n:]
		}
	}
	return nil
}

// any7f reports a byte whose last seven bits are least or more.
func any7f(b []byte, least byte) bool {
	for _, v := range b {
		if v&0x7f >= least {
			return true
		}
	}
	return false
}

// place is the lane, and the number of its sixteen, that holds an element of a step.
func place(row, col int) (lane, number int) {
	t, k := col/16, col%16
	r, h, q := row/8+k/8*2, k%2, k%8/2
	return row%8*4 + q, t*8 + 2*r + h
}

// pack16: two halves, by t, of 16 bytes a lane.
func pack16(dst []byte, block func(int, int) []byte, unit int) {
	for row := range PanelRows {
		b := block(row, unit)
		for col := range StepCols {
			lane, n := place(row, col)
			at := n/8*512 + lane*16 + n%8*2
			copy(dst[at:at+2], b[2*col:])
		}
	}
}

// pack8: 16 bytes a lane, then what a block begins with, by row.
func pack8(head int) func([]byte, func(int, int) []byte, int) {
	return func(dst []byte, block func(int, int) []byte, unit int) {
		for row := range PanelRows {
			b := block(row, unit)
			copy(dst[512+head*row:][:head], b)
			for col := range StepCols {
				lane, n := place(row, col)
				dst[lane*16+n] = b[head+col]
			}
		}
	}
}

// put4 sets the 4-bit code of an element of a step of 8 bytes a lane.
func put4(dst []byte, row, col int, code byte) {
	lane, n := place(row, col)
	nibble := n%8/2 + n%2*4 // of the lane's word n/8
	dst[lane*8+n/8*4+nibble/2] |= code << (nibble % 2 * 4)
}

// code4 is element col of 16 bytes whose low halves are the first 16.
func code4(b []byte, col int) byte { return b[col%16] >> (col / 16 * 4) & 15 }

// pack4: 8 bytes a lane, then what a block begins with, by row.
func pack4(head int) func([]byte, func(int, int) []byte, int) {
	return func(dst []byte, block func(int, int) []byte, unit int) {
		clear(dst[:256])
		for row := range PanelRows {
			b := block(row, unit)
			copy(dst[256+head*row:][:head], b)
			for col := range StepCols {
				put4(dst, row, col, code4(b[head:], col))
			}
		}
	}
}

// packMXFP4: its codes take turns in a byte, its exponent is the last byte.
func packMXFP4(dst []byte, block func(int, int) []byte, unit int) {
	clear(dst[:256])
	for row := range PanelRows {
		b := block(row, unit)
		dst[256+row] = b[16]
		for col := range StepCols {
			put4(dst, row, col, b[col/2]>>(col%2*4)&15)
		}
	}
}

// packQ4_K: eight steps, then 16 bytes of scales by row.
func packQ4_K(dst []byte, block func(int, int) []byte, unit int) {
	clear(dst[:2048])
	for row := range PanelRows {
		b := block(row, unit)
		copy(dst[2048+16*row:][:16], b)
		for step := range 8 {
			for col := range StepCols {
				put4(dst[256*step:], row, col, b[16+step/2*32+col]>>(step%2*4)&15)
			}
		}
	}
}

// packQ6_K: eight steps of 4-bit codes and, 4 bytes a lane, their upper two bits; then 16
// scales by row, then d by row.
func packQ6_K(dst []byte, block func(int, int) []byte, unit int) {
	clear(dst[:3072])
	for row := range PanelRows {
		b := block(row, unit)
		copy(dst[3072+16*row:][:16], b[192:208])
		copy(dst[3072+256+2*row:][:2], b[208:210])
		for step := range 8 {
			half, quarter, out := step/4, step%4, dst[384*step:]
			for col := range StepCols {
				put4(out, row, col, b[64*half+quarter%2*32+col]>>(quarter/2*4)&15)
				lane, n := place(row, col)
				bit := 2*(n/2) + n%2*16
				out[256+4*lane+bit/8] |= b[128+32*half+col] >> (2 * quarter) & 3 << (bit % 8)
			}
		}
	}
}
