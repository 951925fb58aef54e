package ref

import "math"

// HalfToFloat widens an IEEE 754 binary16 to binary32, exactly: subnormals,
// infinities and NaN payloads included.
func HalfToFloat(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	man := uint32(h) & 0x3ff
	switch {
	case exp == 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | man<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
	}
	// Zero or subnormal: man · 2⁻²⁴, which binary32 holds exactly.
	f := float32(man) * (1.0 / (1 << 24))
	return math.Float32frombits(math.Float32bits(f) | sign)
}

// FloatToHalf rounds a binary32 to the nearest binary16, ties to even. Values too large
// become an infinity; a NaN stays a (quiet) NaN.
func FloatToHalf(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	exp := int32(b>>23) & 0xff
	man := b & 0x7fffff
	if exp == 0xff {
		if man != 0 {
			return sign | 0x7e00 | uint16(man>>13)
		}
		return sign | 0x7c00
	}
	e := exp - 112 // biased exponent of the half
	if e >= 0x1f {
		return sign | 0x7c00
	}
	shift := uint32(13)
	if e <= 0 {
		if e < -10 {
			return sign // below half of the smallest subnormal
		}
		man |= 0x800000
		shift = uint32(14 - e)
		e = 0
	}
	v := uint32(e)<<10 | man>>shift
	if e == 0 {
		v = man >> shift
	}
	rest := man & (1<<shift - 1)
	mid := uint32(1) << (shift - 1)
	if rest > mid || rest == mid && v&1 == 1 {
		v++ // a carry goes into the exponent and, at the top, gives infinity
	}
	return sign | uint16(v)
}

// BFloatToFloat widens a bfloat16, exactly.
func BFloatToFloat(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// FloatToBFloat rounds a binary32 to the nearest bfloat16, ties to even. A NaN
// stays a (quiet) NaN.
func FloatToBFloat(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
