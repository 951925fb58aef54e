package ref

import (
	"encoding/binary"
	"fmt"
	"math"

	"vapp.dev/kernels"
)

// Quantize stores src as f: F32, F16, BF16, F8E4M3, F8E5M2, Q8_0, Q4_0 or Q4_1; it panics for
// another format. len(src) is a multiple of f's block, dst holds at least
// f.Bytes(len(src)) bytes. Rounding is GGUF's reference (ggml-quants.c,
// quantize_row_*_ref), values are finite.
func Quantize(f kernels.Format, src []float32, dst []byte) {
	elems, size := f.Block()
	if size == 0 || len(src)%elems != 0 || int64(len(dst)) < f.Bytes(int64(len(src))) {
		panic(fmt.Sprintf("ref: Quantize %d elements as %v to %d bytes", len(src), f, len(dst)))
	}
	le := binary.LittleEndian
	for i := 0; i < len(src); i += elems {
		x, out := src[i:i+elems], dst[:size]
		switch f {
		case kernels.F32:
			le.PutUint32(out, math.Float32bits(x[0]))
		case kernels.F16:
			le.PutUint16(out, FloatToHalf(x[0]))
		case kernels.BF16:
			le.PutUint16(out, FloatToBFloat(x[0]))
		case kernels.F8E4M3:
			out[0] = FloatToE4M3(x[0])
		case kernels.F8E5M2:
			out[0] = FloatToE5M2(x[0])
		case kernels.Q8_0:
			encodeQ8_0(x, out)
		case kernels.Q4_0:
			encodeQ4_0(x, out)
		case kernels.Q4_1:
			encodeQ4_1(x, out)
		default:
			panic(fmt.Sprintf("ref: Quantize has no rule for %v", f))
		}
		dst = dst[size:]
	}
}

// encodeQ8_0 uses d = max|x|/127 and rounds half away from zero.
func encodeQ8_0(x []float32, out []byte) {
	var amax float32
	for _, v := range x {
		amax = max(amax, float32(math.Abs(float64(v))))
	}
	d := amax / 127
	inv := inverse(d)
	binary.LittleEndian.PutUint16(out, FloatToHalf(d))
	for i, v := range x {
		out[2+i] = byte(int8(math.Round(float64(v * inv))))
	}
}

// encodeQ4_0 takes d so that the element largest in magnitude becomes −8.
func encodeQ4_0(x []float32, out []byte) {
	var amax, signed float32
	for _, v := range x {
		if a := float32(math.Abs(float64(v))); a > amax {
			amax, signed = a, v
		}
	}
	d := signed / -8
	inv := inverse(d)
	binary.LittleEndian.PutUint16(out, FloatToHalf(d))
	for i := range 16 {
		out[2+i] = nibble(float32(x[i]*inv)+8.5) | nibble(float32(x[i+16]*inv)+8.5)<<4
	}
}

// encodeQ4_1 maps min to 0 and max to 15.
func encodeQ4_1(x []float32, out []byte) {
	lo, hi := x[0], x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	d := (hi - lo) / 15
	inv := inverse(d)
	binary.LittleEndian.PutUint16(out, FloatToHalf(d))
	binary.LittleEndian.PutUint16(out[2:], FloatToHalf(lo))
	for i := range 16 {
		out[4+i] = nibble(float32((x[i]-lo)*inv)+0.5) | nibble(float32((x[i+16]-lo)*inv)+0.5)<<4
	}
}

func inverse(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}

func nibble(v float32) byte { return byte(min(15, int8(v))) }
