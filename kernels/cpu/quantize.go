//go:build cgo

package cpu

import (
	"math"

	"vapp.dev/kernels/cpu/native"
)

// QuantizeE4M3 stores a row x as F8E4M3 in dst [len(x)] and returns its scale: max|x|/448, or 1
// for zeros. x is divided by the scale in float32, then rounded to nearest, ties to even. ok is
// false if x has a NaN or an infinity.
func QuantizeE4M3(x []float32, dst []byte) (scale float32, ok bool) {
	if len(dst) != len(x) {
		panic("cpu: QuantizeE4M3: lengths differ")
	}
	if len(x) == 0 {
		return 1, true
	}
	s := float64(native.QuantizeE4M3(x, dst))
	return float32(s), !math.IsNaN(s) && !math.IsInf(s, 0)
}

// RoundF16 rounds src to binary16, ties to even, in dst: 2·len(src) bytes.
func RoundF16(src []float32, dst []byte) {
	if len(dst) != 2*len(src) {
		panic("cpu: RoundF16: lengths differ")
	}
	if len(src) > 0 {
		native.RoundF16(src, dst)
	}
}
