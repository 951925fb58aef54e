package cpu

import (
	"encoding/binary"
	"strings"

	"vapp.dev/kernels"
)

// w8a8Suffix ends the names of variants that multiply I8 with x as int8.
const w8a8Suffix = "+w8a8"

// The constants of native/linear/w8a8/w8a8.h; linear.go checks that they are equal.
const (
	w8K    = 64      // inputs are padded to a multiple of it
	w8Tail = 64      // bytes after the codes of a row of x
	w8Most = 1 << 17 // with so many inputs sums fit 32 bits
)

// W8A8Inputs is what inputs are padded to in a panel; phases of experts need whole ones.
const W8A8Inputs = w8K

// W8A8 returns the name of the variant of Linear that rounds each row of x to int8 with its own
// scale and multiplies I8 with ChannelScales in integers. All such variants give the same bits.
func W8A8(variant string) string { return variant + w8a8Suffix }

func (m Matrix) w8a8() bool {
	return m.Format == kernels.I8 && strings.HasSuffix(m.Variant, w8a8Suffix)
}

// w8Row returns the bytes of a row of x.
func w8Row(in int) int64 { return roundUp(int64(in), w8K) + w8Tail }

// w8Workspace is LinearWorkspace for W8A8: shared holds the rows of x, padded to whole tiles
// for amx; each thread has a row, or the sums of a panel.
func w8Workspace(variant string, maxRows, in int) (shared, perThread int64) {
	row := w8Row(in)
	if variant != W8A8("amx") {
		return int64(maxRows) * row, row
	}
	rows := roundUp(int64(maxRows), amxRows)
	return rows * row, max(row, rows*panelRows*4)
}

// packW8A8 packs int8 as dwords of four neighbours, each byte plus 128, up to the end of the
// panel.
func packW8A8(dst, src []byte) {
	le := binary.LittleEndian
	for len(dst) > 0 {
		var four [4]byte
		n := copy(four[:], src)
		le.PutUint32(dst, le.Uint32(four[:])^0x80808080)
		src, dst = src[n:], dst[min(4*panelRows, len(dst)):]
	}
}
