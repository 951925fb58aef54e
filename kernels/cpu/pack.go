package cpu

import (
	"encoding/binary"
	"fmt"

	"vapp.dev/kernels"
)

// PackRows stores rows [row0, row0+n) of a weight [rows,cols] in dst, the whole
// packed weight of LinearLayout bytes. src holds the n rows in format f as a
// checkpoint lays them out: row after row, GGUF's blocks. Rows may come in any
// order and any number at a time; different rows may be packed from several
// goroutines at once. A length that does not fit is a programming error and panics.
func PackRows(variant string, f kernels.Format, dst []byte, rows, cols, row0 int, src []byte) {
	packed, _, ok := LinearLayout(variant, f, rows, cols)
	rowBytes := int(f.Bytes(int64(cols)))
	if !ok || int64(len(dst)) < packed || len(src)%rowBytes != 0 || row0 < 0 || len(src)/rowBytes > rows-row0 {
		panic(fmt.Sprintf("cpu: PackRows %d bytes of %v at row %d of [%d,%d] for %s to %d bytes",
			len(src), f, row0, rows, cols, variant, len(dst)))
	}
	size := int(panelBytes(f, cols))
	for r := row0; len(src) > 0; r++ {
		at := r / panelRows * size
		packRow(f, dst[at:at+size], r%panelRows, src[:rowBytes])
		src = src[rowBytes:]
	}
}

// packRow stores one row as lane of a panel.
func packRow(f kernels.Format, panel []byte, lane int, src []byte) {
	switch f {
	case kernels.F32:
		spread(panel[lane*4:], src, 4)
	case kernels.F16:
		spread(panel[lane*2:], src, 2)
	case kernels.BF16:
		packPairs(panel[lane*4:], src)
	case kernels.Q8_0:
		packBytes(panel, lane, src)
	case kernels.Q4_0:
		packNibbles(panel, lane, src, 1)
	case kernels.Q4_1:
		packNibbles(panel, lane, src, 2)
	}
}

// spread puts each run of size bytes one panel row apart.
func spread(dst, src []byte, size int) {
	for k := 0; k < len(src); k += size {
		copy(dst[k*panelRows:k*panelRows+size], src[k:k+size])
	}
}

// packPairs keeps two neighbours together; the odd end gets a zero.
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

// packBytes turns {d, q [32]int8} into scales and one byte for each k.
func packBytes(panel []byte, lane int, src []byte) {
	for ; len(src) > 0; src, panel = src[34:], panel[34*panelRows:] {
		copy(panel[lane*2:lane*2+2], src[:2])
		quants := panel[64+lane : 64+32*panelRows]
		for j, q := range src[2:34] {
			quants[j*panelRows] = q
		}
	}
}

// packNibbles turns {head halves, q [16]byte}, where byte i holds elements i and
// i+16, into heads and four dwords of eight neighbours.
func packNibbles(panel []byte, lane int, src []byte, heads int) {
	le := binary.LittleEndian
	size := 2*heads + 16
	for ; len(src) > 0; src, panel = src[size:], panel[size*panelRows:] {
		for h := range heads {
			copy(panel[h*64+lane*2:h*64+lane*2+2], src[2*h:2*h+2])
		}
		quants := panel[heads*64+lane*4:]
		first, second := le.Uint64(src[2*heads:]), le.Uint64(src[2*heads+8:])
		le.PutUint32(quants, lowNibbles(first))
		le.PutUint32(quants[128:], lowNibbles(second))
		le.PutUint32(quants[256:], lowNibbles(first>>4))
		le.PutUint32(quants[384:], lowNibbles(second>>4))
	}
}

// lowNibbles gathers the low half of each of eight bytes.
func lowNibbles(x uint64) uint32 {
	x &= 0x0f0f0f0f0f0f0f0f
	x = (x | x>>4) & 0x00ff00ff00ff00ff
	x = (x | x>>8) & 0x0000ffff0000ffff
	return uint32(x | x>>16)
}
