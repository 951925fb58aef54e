package ref

import (
	"math"

	"vapp.dev/kernels"
)

// float8s has the 256 values of an 8-bit float.
type float8s [256]float32

// e4m3 and e5m2 are the OCP 8-bit floats: E4M3 has no infinities and one NaN of
// each sign, E5M2 is the upper half of a binary16.
var e4m3, e5m2 = decodeE4M3(), decodeE5M2()

func decodeE4M3() (t float8s) {
	for i := range t {
		sign, exp, frac := 1.0, i>>3&15, float64(i&7)
		if i >= 128 {
			sign = -1
		}
		switch {
		case i&127 == 127:
			t[i] = float32(math.NaN())
		case exp == 0:
			t[i] = float32(sign * math.Ldexp(frac/8, -6))
		default:
			t[i] = float32(sign * math.Ldexp(1+frac/8, exp-7))
		}
	}
	return t
}

func decodeE5M2() (t float8s) {
	for i := range t {
		t[i] = HalfToFloat(uint16(i) << 8)
	}
	return t
}

// The largest finite numbers of the formats.
const (
	maxE4M3 = 448
	maxE5M2 = 57344
)

// FloatToE4M3 rounds to the nearest, ties to even. Values beyond ±448 become ±448
// (saturating, as in PyTorch's and CUDA's conversions for weights and K/V); NaN stays NaN.
func FloatToE4M3(x float32) byte { return float8(x, &e4m3, maxE4M3, 0x7f) }

// FloatToE5M2 is FloatToE4M3 for E5M2, which saturates at ±57344.
func FloatToE5M2(x float32) byte { return float8(x, &e5m2, maxE5M2, 0x7e) }

// float8 returns the nearest of the positive codes, whose values ascend, with the sign of x.
func float8(x float32, t *float8s, most float32, nan byte) byte {
	var sign byte
	if math.Signbit(float64(x)) {
		sign = 0x80
	}
	if x != x {
		return nan | sign
	}
	a := min(float32(math.Abs(float64(x))), most)
	lo, hi := 0, 0x7f
	for t[hi] != t[hi] || t[hi] > most { // the codes of NaN and infinity are highest
		hi--
	}
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if t[mid] <= a {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	if next := lo + 1; next < 0x80 && t[next] <= most {
		below, above := float64(a)-float64(t[lo]), float64(t[next])-float64(a)
		if above < below || above == below && lo%2 == 1 {
			lo = next
		}
	}
	return byte(lo) | sign
}

// fp4 has the 16 values of E2M1.
var fp4 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6}

// mxfp4 decodes a block. Byte i holds elements 2i (low half) and 2i+1; the last byte is the
// exponent E of the block's scale 2^(E−127), where 255 is NaN.
func mxfp4(src []byte, dst []float32) {
	scale := float32(math.Ldexp(1, int(src[16])-127))
	if src[16] == 255 {
		scale = float32(math.NaN())
	}
	fp4Pairs(src[:16], scale, dst)
}

// fp4Pairs decodes bytes of two numbers, the low half first, times a scale.
func fp4Pairs(src []byte, scale float32, dst []float32) {
	for i, b := range src {
		dst[2*i], dst[2*i+1] = scale*fp4[b&15], scale*fp4[b>>4]
	}
}

// Scales are the scales of a matrix [rows, cols] of 8-bit floats, I8 or NVFP4.
type Scales struct {
	Values []float32
	// Rows and Cols are how many rows and columns share a scale.
	Rows, Cols int
	Across     int // scales in a row of blocks
}

// Apply multiplies row r by its scales. A nil Scales does nothing.
func (s *Scales) Apply(r int, row []float32) {
	if s == nil {
		return
	}
	v := s.Values[r/s.Rows*s.Across:]
	for at := 0; at < len(row); at += s.Cols {
		part, scale := row[at:min(at+s.Cols, len(row))], v[at/s.Cols]
		for i := range part {
			part[i] *= scale
		}
	}
}

// float8Values returns the table of a format, nil for others.
func float8Values(f kernels.Format) *float8s {
	switch f {
	case kernels.F8E4M3:
		return &e4m3
	case kernels.F8E5M2:
		return &e5m2
	}
	return nil
}

// decodeNVFP4 reads {q [8]byte, s E4M3}, where byte i holds elements 2i and 2i+1: x = s·q, which is
// exact.
func decodeNVFP4(src []byte, dst []float32) { fp4Pairs(src[:8], e4m3[src[8]], dst) }
