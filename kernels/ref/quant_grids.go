package ref

import (
	_ "embed"
	"encoding/binary"
	"math/bits"
)

// gridWords has the grids of GGUF's IQ formats, written by testdata/grids.py: an entry is a word
// of eight indices of two bits, or of four of four bits for IQ3, the first in the lowest bits.
//
//go:embed grids.bin
var gridWords []byte

// A grid is the entries of gridWords from first on.
type grid struct{ first, bits int }

var (
	gridIQ2_XXS = grid{0, 2}
	gridIQ2_XS  = grid{256, 2}
	gridIQ2_S   = grid{768, 2}
	gridIQ1     = grid{1792, 2} // of IQ1_S and IQ1_M
	gridIQ3_XXS = grid{3840, 4}
	gridIQ3_S   = grid{4096, 4}
)

// at returns index i of an entry.
func (g grid) at(entry, i int) int {
	w := binary.LittleEndian.Uint16(gridWords[2*(g.first+entry):])
	return int(w >> (g.bits * i) & (1<<g.bits - 1))
}

// The magnitudes that indices of the grids mean.
var (
	iq2Values    = []float32{8, 25, 43}
	iq3XXSValues = []float32{4, 12, 20, 28, 36, 44, 52, 62}
	iq3SValues   = []float32{1, 3, 5, 7, 9, 11, 13, 15}
)

// signsOf7 returns eight signs of which seven are stored: an even number is negative.
func signsOf7(stored uint32) byte {
	return byte(stored&127) | byte(bits.OnesCount32(stored&127)&1)<<7
}

// signed negates x if bit i of signs is set.
func signed(x float32, signs byte, i int) float32 {
	if signs>>i&1 != 0 {
		return -x
	}
	return x
}

// decodeIQ4_XS reads {d half, high uint16, low [4]byte, q [128]byte}: eight sub-blocks of 32,
// x = (d·(scale−32))·table[q]; scales have four bits in low and two in high, nibbles are as in
// Q4_0.
func decodeIQ4_XS(src []byte, dst []float32) {
	d, high := halfAt(src), binary.LittleEndian.Uint16(src[2:])
	for j := range 8 {
		scale := src[4+j/2]>>(j%2*4)&15 | byte(high>>(2*j)&3)<<4
		dl := d * float32(int(scale)-32)
		for i, q := range src[8+16*j:][:16] {
			dst[32*j+i], dst[32*j+i+16] = dl*iq4Table[q&15], dl*iq4Table[q>>4]
		}
	}
}

// decodeIQ3_XXS reads {d half, q [64]byte, more [8]uint32}: eight sub-blocks of 32,
// x = ±(d·(scale+½)/2)·value. more has a sub-block's scale in its upper four bits, and below four
// times seven signs; q has a grid's entry for each four elements.
func decodeIQ3_XXS(src []byte, dst []float32) {
	d := halfAt(src)
	for j := range 8 {
		more := binary.LittleEndian.Uint32(src[66+4*j:])
		dl := d * (0.5 + float32(more>>28)) * 0.5
		for i := range 32 {
			q := int(src[2+8*j+i/4])
			dst[32*j+i] = signed(dl*iq3XXSValues[gridIQ3_XXS.at(q, i%4)], signsOf7(more>>(7*(i/8))), i%8)
		}
	}
}

// decodeIQ3_S reads {d half, q [64]byte, high [8]byte, signs [32]byte, scales [4]byte}: eight
// sub-blocks of 32, x = ±(d·(1+2·scale))·value; bit i of a byte of high is the ninth of the
// sub-block's i-th q.
func decodeIQ3_S(src []byte, dst []float32) {
	d := halfAt(src)
	for j := range 8 {
		dl := d * float32(1+2*(src[106+j/2]>>(j%2*4)&15))
		for i := range 32 {
			q := int(src[2+8*j+i/4]) | int(src[66+j]>>(i/4)&1)<<8
			dst[32*j+i] = signed(dl*iq3SValues[gridIQ3_S.at(q, i%4)], src[74+4*j+i/8], i%8)
		}
	}
}

// iq2Scale returns d·(scale+½)/4 of four bits.
func iq2Scale(d float32, scale byte) float32 { return d * (0.5 + float32(scale&15)) * 0.25 }

// decodeIQ2_XXS reads {d half, [8]{q [4]byte, more uint32}}: eight sub-blocks of 32,
// x = ±(d·(scale+½)/4)·value, with more as in IQ3_XXS and a grid's entry for each eight elements.
func decodeIQ2_XXS(src []byte, dst []float32) {
	d := halfAt(src)
	for j := range 8 {
		sub := src[2+8*j:]
		more := binary.LittleEndian.Uint32(sub[4:])
		dl := iq2Scale(d, byte(more>>28))
		for i := range 32 {
			dst[32*j+i] = signed(dl*iq2Values[gridIQ2_XXS.at(int(sub[i/8]), i%8)], signsOf7(more>>(7*(i/8))), i%8)
		}
	}
}

// decodeIQ2_XS reads {d half, q [32]uint16, scales [8]byte}: sixteen sub-blocks of 16, scaled as
// IQ2_XXS; q has nine bits of a grid's entry and seven signs.
func decodeIQ2_XS(src []byte, dst []float32) {
	d := halfAt(src)
	for i := range dst {
		q := uint32(binary.LittleEndian.Uint16(src[2+i/8*2:]))
		dl := iq2Scale(d, src[66+i/32]>>(i/16%2*4))
		dst[i] = signed(dl*iq2Values[gridIQ2_XS.at(int(q&511), i%8)], signsOf7(q>>9), i%8)
	}
}

// decodeIQ2_S reads {d half, q [32]byte, signs [32]byte, high [8]byte, scales [8]byte}: as IQ2_XS
// with eight signs; high has two bits of each q.
func decodeIQ2_S(src []byte, dst []float32) {
	d := halfAt(src)
	for i := range dst {
		g := i / 8
		q := int(src[2+g]) | int(src[66+g/4]>>(g%4*2)&3)<<8
		dl := iq2Scale(d, src[74+i/32]>>(i/16%2*4))
		dst[i] = signed(dl*iq2Values[gridIQ2_S.at(q, i%8)], src[34+g], i%8)
	}
}

// iq1 returns (index − 1 ± 1/8) of the grid, the sign set for minus.
func iq1(q, i int, minus bool) float32 {
	v := float32(gridIQ1.at(q, i) - 1)
	if minus {
		return v - 0.125
	}
	return v + 0.125
}

// decodeIQ1_S reads {d half, q [32]byte, high [8]uint16}: eight sub-blocks of 32,
// x = (d·(2·scale+1))·(index − 1 ± 1/8). high has four times three bits of q, three bits of
// scale and the sign of the shift.
func decodeIQ1_S(src []byte, dst []float32) {
	d := halfAt(src)
	for i := range dst {
		high := binary.LittleEndian.Uint16(src[34+i/32*2:])
		q := int(src[2+i/8]) | int(high>>(i/8%4*3)&7)<<8
		dst[i] = d * float32(2*(high>>12&7)+1) * iq1(q, i%8, high>>15 != 0)
	}
}

// decodeIQ1_M reads {q [32]byte, high [16]byte, scales [4]uint16}: as IQ1_S with sixteen
// sub-blocks of 16. A nibble of high has three bits of q and the sign of the shift. A word of
// scales has four scales, and four bits of the half d above them.
func decodeIQ1_M(src []byte, dst []float32) {
	var half uint16
	for i := range 4 {
		half |= binary.LittleEndian.Uint16(src[48+2*i:]) >> 12 << (4 * i)
	}
	d := HalfToFloat(half)
	for i := range dst {
		scale := binary.LittleEndian.Uint16(src[48+i/64*2:]) >> (i / 16 % 4 * 3) & 7
		high := src[32+i/16] >> (i / 8 % 2 * 4)
		q := int(src[i/8]) | int(high&7)<<8
		dst[i] = d * float32(2*scale+1) * iq1(q, i%8, high&8 != 0)
	}
}

// decodeTQ1_0 reads {q [48]byte, last [4]byte, d half}: x = d·(digit−1). A byte is a fraction of
// 256 whose ternary digits are five elements, 32 bytes side by side, then 16, then the last four
// bytes with four digits each.
func decodeTQ1_0(src []byte, dst []float32) {
	d := halfAt(src[52:])
	at := func(q []byte, digits int) {
		power := byte(1)
		for range digits {
			for i, b := range q {
				dst[i] = d * float32(int(uint16(b*power)*3>>8)-1)
			}
			dst, power = dst[len(q):], power*3
		}
	}
	at(src[:32], 5)
	at(src[32:48], 5)
	at(src[48:52], 4)
}

// decodeTQ2_0 reads {q [64]byte, d half}: x = d·(q−1), two bits each, in halves of 128 elements as
// Q2_K.
func decodeTQ2_0(src []byte, dst []float32) {
	d := halfAt(src[64:])
	for i := range dst {
		dst[i] = d * float32(int(src[i/128*32+i%32]>>(i%128/32*2)&3)-1)
	}
}
