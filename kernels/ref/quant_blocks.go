package ref

import "encoding/binary"

// decodeQ5_0 reads {d half, high [4]byte, q [16]byte}: x = d·(q−16). Low bits are stored as
// in Q4_0; bit i of high is the fifth bit of element i.
func decodeQ5_0(src []byte, dst []float32) {
	d, high := halfAt(src), binary.LittleEndian.Uint32(src[2:])
	for i := range 16 {
		q := src[6+i]
		dst[i] = float32(int(q&15|byte(high>>i&1)<<4)-16) * d
		dst[i+16] = float32(int(q>>4|byte(high>>(i+16)&1)<<4)-16) * d
	}
}

// decodeQ5_1 reads {d half, m half, high [4]byte, q [16]byte}: x = d·q + m.
func decodeQ5_1(src []byte, dst []float32) {
	d, m, high := halfAt(src), halfAt(src[2:]), binary.LittleEndian.Uint32(src[4:])
	for i := range 16 {
		q := src[8+i]
		dst[i] = float32(float32(q&15|byte(high>>i&1)<<4)*d) + m
		dst[i+16] = float32(float32(q>>4|byte(high>>(i+16)&1)<<4)*d) + m
	}
}

// decodeQ2_K reads {scales [16]byte, q [64]byte, d half, dmin half}: sixteen
// sub-blocks of 16, x = (d·scale)·q − dmin·min; a byte of scales has the minimum in
// its high half. Each half of 128 elements has 32 bytes, two bits of each a quarter.
func decodeQ2_K(src []byte, dst []float32) {
	d, dmin := halfAt(src[80:]), halfAt(src[82:])
	for j := range 16 {
		sc := src[j]
		scale, min := d*float32(sc&15), dmin*float32(sc>>4)
		for i := range 16 {
			q := src[16+j/8*32+j%2*16+i] >> (j % 8 / 2 * 2) & 3
			dst[16*j+i] = float32(scale*float32(q)) - min
		}
	}
}

// decodeQ3_K reads {high [32]byte, q [64]byte, scales [12]byte, d half}: sixteen sub-blocks
// of 16, x = (d·(scale−32))·(q−4). Low bits are stored as in Q2_K; bit k of byte i of high is
// the third bit of element 32·k+i.
func decodeQ3_K(src []byte, dst []float32) {
	d, scales := halfAt(src[108:]), src[96:108]
	for j := range 16 {
		low := scales[j%8] >> (j / 8 * 4) & 15
		scale := d * float32(int(low|scales[8+j%4]>>(j/4*2)&3<<4)-32)
		for i := range 16 {
			at := j%2*16 + i
			q := src[32+j/8*32+at]>>(j%8/2*2)&3 | src[at]>>(j/2)&1<<2
			dst[16*j+i] = scale * float32(int(q)-4)
		}
	}
}

// decodeQ5_K reads {d half, dmin half, scales [12]byte, high [32]byte, q [128]byte}: as Q4_K;
// bit j of byte i of high is the fifth bit of element i of sub-block j.
func decodeQ5_K(src []byte, dst []float32) {
	d, dmin := halfAt(src), halfAt(src[2:])
	high, qs := src[16:48], src[48:176]
	for j := range 8 {
		sc, mn := ScaleMinQ4_K(j, src[4:16])
		scale, min := d*float32(sc), dmin*float32(mn)
		for i := range 32 {
			q := qs[j/2*32+i]>>(j%2*4)&15 | high[i]>>j&1<<4
			dst[j*32+i] = float32(scale*float32(q)) - min
		}
	}
}

// iq4Table has the values of IQ4_NL's codes (ggml's kvalues_iq4nl).
var iq4Table = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// decodeIQ4_NL reads {d half, q [16]byte}: x = d·table[q], nibbles as in Q4_0.
func decodeIQ4_NL(src []byte, dst []float32) {
	d := halfAt(src)
	for i := range 16 {
		dst[i], dst[i+16] = d*iq4Table[src[2+i]&15], d*iq4Table[src[2+i]>>4]
	}
}
