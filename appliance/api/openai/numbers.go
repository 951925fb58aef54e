package openai

import (
	"encoding/base64"
	"encoding/binary"
	"math"
)

// dtypes maps the values of embed_dtype to number formats.
var dtypes = map[string]dtype{
	"float32":  {bytes: 4},
	"float16":  {bytes: 2, exponent: 5, mantissa: 10},
	"bfloat16": {bytes: 2, exponent: 8, mantissa: 7},
	"fp8_e4m3": {bytes: 1, exponent: 4, mantissa: 3, finite: true},
	"fp8_e5m2": {bytes: 1, exponent: 5, mantissa: 2},
}

// dtype is a floating-point format of at most 16 bits; without a mantissa it is float32.
type dtype struct {
	bytes, exponent, mantissa int
	finite                    bool // no infinities: values that are too large become NaN
}

// bits returns x in the format, rounded to nearest, ties to even.
func (d dtype) bits(x float32) uint32 {
	b := math.Float32bits(x)
	if d.mantissa == 0 {
		return b
	}
	sign := b >> 31 << (d.exponent + d.mantissa)
	all := uint32(1)<<(d.exponent+d.mantissa) - 1 // all bits of exponent and mantissa
	infinite, most := all-(1<<d.mantissa-1), all-(1<<d.mantissa)
	if d.finite {
		infinite, most = all, all-1
	}
	if x != x {
		return sign | all
	}
	// The value in units of the last place of d at this exponent.
	bias := 1<<(d.exponent-1) - 1
	e := max(int(b>>23&0xff)-127, 1-bias)
	units := math.RoundToEven(math.Ldexp(math.Abs(float64(x)), d.mantissa-e))
	if math.IsInf(float64(x), 0) || units >= 1<<62 {
		return sign | infinite
	}
	// A mantissa that rounds up to 2^mantissa carries into the exponent.
	out := uint64(e+bias-1)<<d.mantissa + uint64(units)
	if out > uint64(most) {
		return sign | infinite
	}
	return sign | uint32(out)
}

// pack returns the bytes of all numbers.
func (w *PoolWire) pack(values []float32) []byte {
	d := dtypes[w.Dtype]
	out := make([]byte, len(values)*d.bytes)
	var order binary.ByteOrder = binary.LittleEndian
	if w.Big {
		order = binary.BigEndian
	}
	for i, x := range values {
		at, b := out[i*d.bytes:], d.bits(x)
		switch d.bytes {
		case 4:
			order.PutUint32(at, b)
		case 2:
			order.PutUint16(at, uint16(b))
		default:
			at[0] = byte(b)
		}
	}
	return out
}

// base64 returns the bytes of all numbers in base64.
func (w *PoolWire) base64(values []float32) string {
	return base64.StdEncoding.EncodeToString(w.pack(values))
}
