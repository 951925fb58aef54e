package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"vapp.dev/kernels"
)

// PackRows is Matrix.PackRows for a weight without scales.
func PackRows(variant string, f kernels.Format, dst []byte, rows, cols, row0 int, src []byte) {
	Matrix{Variant: variant, Format: f, Rows: rows, Cols: cols}.PackRows(dst, row0, src)
}

// PackRows stores rows of a weight, from row0 on, in dst, the whole packed weight of Layout
// bytes. src holds the rows in their format as a checkpoint stores them: row after row, in
// GGUF's blocks, or in the blocks of MXFP4 (17 bytes) or NVFP4 (9). Rows may come in any order and any number at
// a time; different rows may be packed from several goroutines at once. It panics on a length
// that does not fit.
func (m Matrix) PackRows(dst []byte, row0 int, src []byte) {
	packed, _, ok := m.Layout()
	rowBytes := int(m.Format.Bytes(int64(m.Cols)))
	if !ok || int64(len(dst)) < packed || len(src)%rowBytes != 0 || row0 < 0 || len(src)/rowBytes > m.Rows-row0 {
		panic(fmt.Sprintf("cpu: PackRows %d bytes at row %d of %+v to %d bytes", len(src), row0, m, len(dst)))
	}
	size := int(m.panelBytes())
	for r := row0; len(src) > 0; r++ {
		at := r / panelRows * size
		m.packRow(dst[at:at+size], r%panelRows, src[:rowBytes])
		src = src[rowBytes:]
	}
}

// PackScales stores the scales of one row: one for ChannelScales, one for each 32 inputs for
// GroupScales, else one for each 128. Of the rows that share PanelScales, the first one's are
// stored.
func (m Matrix) PackScales(dst []byte, row int, scales []float32) {
	packed, _, ok := m.Layout()
	if !ok || m.Scales == NoScales || int64(len(dst)) < packed || row < 0 || row >= m.Rows || len(scales) != m.Across() {
		panic(fmt.Sprintf("cpu: PackScales %d scales of row %d of %+v to %d bytes", len(scales), row, m, len(dst)))
	}
	at, step := int64(row/panelRows)*m.panelBytes()+m.elements(), 4*panelRows
	if m.Scales != PanelScales {
		at += int64(row%panelRows) * 4
	} else if step = 4; row%panelRows > 0 {
		return
	}
	for i, s := range scales {
		binary.LittleEndian.PutUint32(dst[at+int64(i*step):], math.Float32bits(s))
	}
}

// packRow stores one row as a lane of a panel.
func (m Matrix) packRow(panel []byte, lane int, src []byte) {
	switch m.Format {
	case kernels.F32:
		spread(panel[lane*4:], src, 4)
	case kernels.F16:
		spread(panel[lane*2:], src, 2)
	case kernels.BF16:
		packPairs(panel[lane*4:], src)
	case kernels.Q8_0:
		if integers(m.Variant, m.Format) > 0 {
			packFours(panel, lane, src)
			return
		}
		packBytes(panel, lane, src)
	case kernels.Q4_0:
		packQ4(panel, lane, src)
	case kernels.Q4_1:
		packQ4WithMin(panel, lane, src)
	case kernels.I4:
		packI4(panel, lane, src)
	case kernels.I8:
		if m.w8a8() {
			packW8A8(panel[lane*4:m.elements()], src)
			return
		}
		spread(panel[lane:], src, 1)
	case kernels.F8E4M3, kernels.F8E5M2:
		packPairsOf8(panel[lane*2:], src)
	case kernels.MXFP4:
		packMXFP4(panel[lane*4:], panel[m.elements()+int64(lane):], src)
	case kernels.NVFP4:
		packNVFP4(panel, lane, src)
	default:
		if slices.Contains(storedFormats, m.Format) {
			packStored(panel[lane:], src)
			return
		}
		high := fields
		if integers(m.Variant, m.Format) > 0 {
			high = byteFields
		}
		packBlocks(m.Format, panel, lane, src, high)
	}
}

// spread stores each `size` bytes of src one panel row apart.
func spread(dst, src []byte, size int) {
	for k := 0; k < len(src); k += size {
		copy(dst[k*panelRows:k*panelRows+size], src[k:k+size])
	}
}

// packPairs stores pairs of neighbours; an odd end is padded with zero.
func packPairs(dst, src []byte) {
	le := binary.LittleEndian
	whole := len(src) &^ 3
	for k := 0; k < whole; k += 4 {
		le.PutUint32(dst[k*panelRows:], le.Uint32(src[k:]))
	}
	if whole < len(src) {
		le.PutUint32(dst[whole*panelRows:], uint32(le.Uint16(src[whole:])))
	}
}

// packPairsOf8 stores pairs of neighbours; an odd end is padded with zero.
func packPairsOf8(dst, src []byte) {
	le := binary.LittleEndian
	whole := len(src) &^ 1
	for k := 0; k < whole; k += 2 {
		le.PutUint16(dst[k*panelRows:], le.Uint16(src[k:]))
	}
	if whole < len(src) {
		le.PutUint16(dst[whole*panelRows:], uint16(src[whole]))
	}
}

// packMXFP4 splits blocks {q [16]byte, e}, where byte i holds elements 2i and 2i+1, into four
// dwords of eight neighbours, the even ones in the low half, and an exponent.
func packMXFP4(quants, exponents, src []byte) {
	le := binary.LittleEndian
	for b := 0; len(src) > 0; src, b = src[17:], b+1 {
		for g := range 4 {
			x := le.Uint32(src[4*g:])
			le.PutUint32(quants[(4*b+g)*4*panelRows:], lowNibbles(x)|lowNibbles(x>>4)<<16)
		}
		exponents[b*panelRows] = src[16]
	}
}

// packNVFP4 splits pairs of blocks {q [8]byte, s}, where byte i holds elements 2i and 2i+1, into two
// scales and four dwords of eight neighbours, the even ones in the low half. An odd block has
// zeros beside it.
func packNVFP4(panel []byte, lane int, src []byte) {
	le := binary.LittleEndian
	for ; len(src) > 0; panel = panel[nvBytes:] {
		for half := range 2 {
			var block [9]byte
			src = src[copy(block[:], src):]
			panel[half*panelRows+lane] = block[8]
			for g := range 2 {
				x := le.Uint32(block[4*g:])
				le.PutUint32(panel[2*panelRows+(2*half+g)*4*panelRows+4*lane:], lowNibbles(x)|lowNibbles(x>>4)<<16)
			}
		}
	}
}

// packBytes splits blocks {d, q [32]int8} into scales and one byte for each k.
func packBytes(panel []byte, lane int, src []byte) {
	for ; len(src) > 0; src, panel = src[34:], panel[34*panelRows:] {
		copy(panel[lane*2:][:2], src[:2])
		for j, q := range src[2:34] {
			panel[(2+j)*panelRows+lane] = q
		}
	}
}

// packFours splits blocks {d, q [32]int8} into scales and dwords of four neighbours, each byte
// plus 128.
func packFours(panel []byte, lane int, src []byte) {
	le := binary.LittleEndian
	for ; len(src) > 0; src, panel = src[34:], panel[34*panelRows:] {
		copy(panel[lane*2:][:2], src[:2])
		for j := 0; j < 32; j += 4 {
			le.PutUint32(panel[(2+j)*panelRows+lane*4:], le.Uint32(src[2+j:])^0x80808080)
		}
	}
}

// packQ4 splits blocks {d, q [16]byte} into scales and four dwords of eight neighbours.
func packQ4(panel []byte, lane int, src []byte) {
	for ; len(src) > 0; src, panel = src[18:], panel[18*panelRows:] {
		copy(panel[lane*2:][:2], src[:2])
		packNibbles(panel[2*panelRows+lane*4:], src[2:18])
	}
}

// packQ4WithMin splits blocks {d, m, q [16]byte} into heads and dwords, like packQ4.
func packQ4WithMin(panel []byte, lane int, src []byte) {
	for ; len(src) > 0; src, panel = src[20:], panel[20*panelRows:] {
		copy(panel[lane*2:][:2], src[:2])
		copy(panel[2*panelRows+lane*2:][:2], src[2:4])
		packNibbles(panel[4*panelRows+lane*4:], src[4:20])
	}
}

// packI4 splits blocks {head, q [16]byte} into heads and dwords, like packQ4.
func packI4(panel []byte, lane int, src []byte) {
	for ; len(src) > 0; src, panel = src[20:], panel[20*panelRows:] {
		copy(panel[lane*4:][:4], src[:4])
		packNibbles(panel[4*panelRows+lane*4:], src[4:20])
	}
}

// packNibbles packs 16 bytes, where byte i holds elements i and i+16, as four dwords of eight
// neighbours, the even ones in the low half.
func packNibbles(quants, src []byte) {
	le := binary.LittleEndian
	first, second := le.Uint64(src), le.Uint64(src[8:])
	for g, x := range [4]uint64{first, second, first >> 4, second >> 4} {
		le.PutUint32(quants[g*4*panelRows:], everySecond(x)|everySecond(x>>8)<<16)
	}
}

// everySecond returns the low nibbles of bytes 0, 2, 4 and 6.
func everySecond(x uint64) uint32 {
	x &= 0x000f000f000f000f
	x = (x | x>>12) & 0x000000ff000000ff
	return uint32(x|x>>24) & 0xffff
}

// lowNibbles returns the low halves of four bytes.
func lowNibbles(x uint32) uint32 {
	x &= 0x0f0f0f0f
	x = (x | x>>4) & 0x00ff00ff
	return (x | x>>8) & 0xffff
}
