package checkpoint

import (
	"encoding/binary"
	"math"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// blockFormats lists the formats that fillBlocks can write.
var blockFormats = []kernels.Format{
	kernels.Q8_0, kernels.Q4_0, kernels.Q4_1, kernels.Q5_0, kernels.Q5_1, kernels.IQ4_NL, kernels.MXFP4, kernels.I4,
	kernels.Q2_K, kernels.Q3_K, kernels.Q4_K, kernels.Q5_K, kernels.Q6_K,
	kernels.IQ4_XS, kernels.IQ3_XXS, kernels.IQ3_S, kernels.IQ2_XXS, kernels.IQ2_XS, kernels.IQ2_S, kernels.IQ1_S, kernels.IQ1_M,
	kernels.TQ1_0, kernels.TQ2_0, kernels.NVFP4,
}

// fillBlocks writes random blocks of a quantized format. All bits are random; then scale sets the
// scales so that the values have a standard deviation near dummyDeviation and a mean near 0.
func fillBlocks(at uint64, row []byte, size int, scale func(block []byte)) {
	fillRandom(at, row)
	for ; len(row) > 0; row = row[size:] {
		scale(row[:size])
	}
}

func fillRandom(at uint64, row []byte) {
	for ; len(row) >= 8; row = row[8:] {
		binary.LittleEndian.PutUint64(row, kernels.Mix(at))
		at += kernels.Golden
	}
	for r := kernels.Mix(at); len(row) > 0; row, r = row[1:], r>>8 {
		row[0] = byte(r)
	}
}

// blockScale returns the function that overwrites the scales of a random block. The standard
// deviation of a uniform whole number with n values is √((n²−1)/12): 73.9 for 256, 18.5 for 64,
// 9.23 for 32, 4.61 for 16, 2.29 for 8, 1.12 for 4. It is 67.4 for the values of IQ4_NL and 2.93
// for those of MXFP4 and NVFP4.
func blockScale(f kernels.Format) func(block []byte) {
	switch f {
	case kernels.Q8_0:
		return oneScale(73.9)
	case kernels.Q4_0:
		return oneScale(4.61)
	case kernels.Q5_0:
		return oneScale(9.23)
	case kernels.IQ4_NL:
		return oneScale(67.4)
	case kernels.Q4_1:
		return scaleAndLeast(4.61, -7.5)
	case kernels.Q5_1:
		return scaleAndLeast(9.23, -15.5)
	case kernels.I4:
		scale := math.Float32bits(dummyDeviation/4.61) &^ ref.ZeroBits
		return func(b []byte) { binary.LittleEndian.PutUint32(b, scale|uint32(7+b[0]&1)) }
	case kernels.NVFP4:
		return func(b []byte) { b[8] = 0x64 + b[8]&3 } // 48 to 60, times scaleOfF8
	case kernels.MXFP4:
		return func(b []byte) { b[16] = 127 - 8 + b[16]&1 }
	}
	if s := gridScale(f); s != nil {
		return s
	}
	return superScale(f)
}

// gridScale is blockScale for the IQ formats of 256 and the ternary ones. Random scales and signs
// stay: √(mean of (s+½)²) is 9.23 for four bits, 4.61 for three, and 18.5 for the signed six of
// IQ4_XS. The values of a grid have the root mean square that is multiplied with it.
func gridScale(f kernels.Format) func(block []byte) {
	switch f {
	case kernels.IQ4_XS:
		return oneScale(67.4 * 18.5)
	case kernels.IQ3_XXS:
		return oneScale(30.8 * 9.23 / 2)
	case kernels.IQ3_S:
		return oneScale(7.59 * 2 * 9.23)
	case kernels.IQ2_XXS:
		return oneScale(23.1 * 9.23 / 4)
	case kernels.IQ2_XS:
		return oneScale(24.2 * 9.23 / 4)
	case kernels.IQ2_S:
		return oneScale(24.4 * 9.23 / 4)
	case kernels.IQ1_S:
		return oneScale(0.78 * 2 * 4.61)
	case kernels.IQ1_M:
		d := halves(dummyDeviation / (0.78 * 2 * 4.61))
		return func(b []byte) {
			h := d[b[0]&3]
			for i := range 4 { // four bits of the half are the upper bits of each word
				b[49+2*i] = b[49+2*i]&15 | byte(h>>(4*i))<<4
			}
		}
	case kernels.TQ1_0:
		d := halves(dummyDeviation / 0.816)
		return func(b []byte) { putHalf(b[52:], d[b[52]&3]) }
	case kernels.TQ2_0:
		d := halves(dummyDeviation / 0.707)
		return func(b []byte) {
			for i, q := range b[:64] {
				b[i] = q &^ (q & (q >> 1) & 0x55 << 1) // 3, which is no ternary digit, becomes 1
			}
			putHalf(b[64:], d[b[64]&3])
		}
	}
	return nil
}

func putHalf(b []byte, h uint16) { binary.LittleEndian.PutUint16(b, h) }

// halves returns four F16 numbers near x; two random bits select one.
func halves(x float32) (t [4]uint16) {
	for i := range t {
		t[i] = ref.FloatToHalf(x * (0.85 + 0.1*float32(i)))
	}
	return t
}

// oneScale is blockScale for blocks that start with their scale; deviation is the standard
// deviation of their codes.
func oneScale(deviation float32) func([]byte) {
	d := halves(dummyDeviation / deviation)
	return func(b []byte) { putHalf(b, d[b[0]&3]) }
}

// scaleAndLeast is oneScale for blocks in which a minimum follows the scale; it is least times the
// scale.
func scaleAndLeast(deviation, least float32) func([]byte) {
	d, m := halves(dummyDeviation/deviation), halves(least*dummyDeviation/deviation)
	return func(b []byte) { i := b[0] & 3; putHalf(b, d[i]); putHalf(b[2:], m[i]) }
}

// superScale is blockScale for blocks of 256.
func superScale(f kernels.Format) func(block []byte) {
	const typical = 32 // value of the six-bit scales
	switch f {
	case kernels.Q2_K:
		d, m := halves(dummyDeviation/1.12/11.5), halves(1.5*dummyDeviation/1.12/11.5)
		return func(b []byte) {
			for i, r := range b[:16] {
				b[i] = (8 + r&7) * 0x11 // 8 to 15, equal to the minimum
			}
			i := b[80] & 3
			putHalf(b[80:], d[i])
			putHalf(b[82:], m[i])
		}
	case kernels.Q3_K:
		d := halves(dummyDeviation / 2.29 / 18.5) // its scales are signed
		return func(b []byte) { putHalf(b[108:], d[b[108]&3]) }
	case kernels.Q4_K, kernels.Q5_K:
		deviation, mean := float32(4.61), float32(7.5)
		if f == kernels.Q5_K {
			deviation, mean = 9.23, 15.5
		}
		d, m := halves(dummyDeviation/deviation/typical), halves(mean*dummyDeviation/deviation/typical)
		return func(b []byte) {
			i := b[0] & 3
			putHalf(b, d[i])
			putHalf(b[2:], m[i])
			packQ4_K(b[4:16])
		}
	case kernels.Q6_K:
		d := halves(dummyDeviation / 18.5 / typical)
		return func(b []byte) {
			for i, r := range b[192:208] {
				b[192+i] = 24 + r&15
			}
			putHalf(b[208:], d[b[208]&3])
		}
	}
	return nil
}

// packQ4_K turns 12 random bytes into eight scales of 24 to 39, each equal to its minimum, packed
// as ref.ScaleMinQ4_K unpacks them.
func packQ4_K(b []byte) {
	var v [8]byte
	for j := range v {
		v[j] = 24 + b[j]&15
	}
	for j := range 4 {
		hi := v[j+4]
		b[j] = v[j] | hi>>4<<6
		b[j+4] = v[j] | hi>>4<<6
		b[j+8] = hi&15 | hi&15<<4
	}
}
