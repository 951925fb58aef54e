package cpu

import (
	"encoding/binary"
	"strings"

	"vapp.dev/kernels"
)

// w8a8Suffix is what the variants have in their names that multiply I8 with x as int8.
const w8a8Suffix = "+w8a8"

// The constants of linear_w8a8.h; linear.go keeps them equal.
const (
	w8K    = 64      // inputs that lie together
	w8Tail = 64      // bytes behind the codes of a row of x
	w8Most = 1 << 17 // inputs of which sums fit 32 bits
)

// W8A8 names the variant of Linear that rounds each row of x to int8 with a scale of its
// own, and multiplies I8 with ChannelScales in integers. All such variants give the same bits.
func W8A8(variant string) string { return variant + w8a8Suffix }

func (m Matrix) w8a8() bool {
	return m.Format == kernels.I8 && strings.HasSuffix(m.Variant, w8a8Suffix)
}

// w8Row is the room of a row of x, in bytes.
func w8Row(in int) int64 { return roundUp(int64(in), w8K) + w8Tail }

// w8Workspace are what LinearWorkspace says: rows of x, which tiles read sixteen at a time, and for
// each thread a row, or the sums of a panel.
func w8Workspace(variant string, maxRows, in int) (shared, perThread int64) {
	row := w8Row(in)
	if variant != W8A8("amx") {
		return int64(maxRows) * row, row
	}
	rows := roundUp(int64(maxRows), amxRows)
	return rows * row, max(row, rows*panelRows*4)
}

// packW8A8 turns int8 into dwords of four neighbours, 128 more each, up to the panel's end.
func packW8A8(dst, src []byte) {
	le := binary.LittleEndian
	for len(dst) > 0 {
		var four [4]byte
		n := copy(four[:], src)
		le.PutUint32(dst, le.Uint32(four[:])^0x80808080)
		src, dst = src[n:], dst[min(4*panelRows, len(dst)):]
	}
}
