package checkpoint

import (
	"encoding/binary"
	"math"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// Dummy weights with scales in separate tensors. 8-bit floats have a standard deviation of
// dummyDeviation/scaleOfF8 and codes of MXFP4 are random bytes; the scales bring both to
// dummyDeviation. Blocks of NVFP4 have a deviation of dummyDeviation/scaleOfF8 too. Codes of int8 are random bytes with a standard deviation of 74; the same scales
// bring them to less than half of dummyDeviation.
const scaleOfF8 = 1.0 / (1 << 13)

// fillScales fills rows of a tensor of scales; it reports false if t, by its name, is not one.
func fillScales(t TensorInfo, at uint64, row []byte) bool {
	switch {
	case isExponents(t):
		fillRandom(at, row)
		for i, r := range row {
			row[i] = exponent(r)
		}
	case isScales(t):
		n := t.RowElements()
		values := make([]float32, n)
		for i := range values {
			values[i] = scaleOfF8 * (0.85 + 0.1*float32(kernels.Mix(at+uint64(i)*kernels.Golden)&3))
		}
		if _, size := t.Format.Block(); t.Format.Quantized() || len(row) != int(n)*size {
			return false
		}
		ref.Quantize(t.Format, values, row)
	default:
		return false
	}
	return true
}

// exponent returns an MXFP4 exponent. Random E2M1 numbers have a standard deviation of 2.93; scales
// of 2^-8 and 2^-7 make it 0.011 and 0.023.
func exponent(random byte) byte { return 127 - 8 + random&1 }

// byteTable returns the levels, divided by scaleOfF8, as codes of an 8-bit float.
func byteTable(levels [256]float32, f kernels.Format) *[256]byte {
	var t [256]byte
	values := finiteF8(f)
	for i, x := range levels {
		t[i] = nearestF8(values, float64(x)/scaleOfF8)
	}
	return &t
}

// finiteF8 returns the non-negative, finite numbers of an 8-bit float, in ascending order; index i
// is code i.
func finiteF8(f kernels.Format) []float64 {
	last := byte(0x7e) // 448; 0x7f is NaN
	if f == kernels.F8E5M2 {
		last = 0x7b // 57344; above are infinity and NaNs
	}
	out := make([]float64, 0, 128)
	for code := byte(0); code <= last; code++ {
		out = append(out, valueF8(f, code))
	}
	return out
}

// nearestF8 returns the code of the number in values that is nearest to x.
func nearestF8(values []float64, x float64) byte {
	size, best := math.Abs(x), 0
	for code, v := range values {
		if math.Abs(v-size) < math.Abs(values[best]-size) {
			best = code
		}
	}
	if x < 0 {
		return byte(best) | 0x80
	}
	return byte(best)
}

// valueF8 returns the number of a non-negative, finite code (OCP 8-bit floating point, revision
// 1.0): E4M3 has a bias of 7, E5M2 of 15.
func valueF8(f kernels.Format, code byte) float64 {
	bits, bias := 3, 7
	if f == kernels.F8E5M2 {
		bits, bias = 2, 15
	}
	e, m := int(code)>>bits, int(code)&(1<<bits-1)
	if e == 0 {
		return math.Ldexp(float64(m), 1-bias-bits)
	}
	return math.Ldexp(float64(m+1<<bits), e-bias-bits)
}

// fillBytes gives each byte the level of one random byte.
func fillBytes(at uint64, row []byte, t *[256]byte) {
	var eight [8]byte
	for len(row) > 0 {
		binary.LittleEndian.PutUint64(eight[:], kernels.Mix(at))
		at += kernels.Golden
		n := min(8, len(row))
		for i, r := range eight[:n] {
			row[i] = t[r]
		}
		row = row[n:]
	}
}
