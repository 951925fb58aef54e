// Package kernels defines the formats that tensors are stored in: their blocks and their
// sizes.
//
// It must not import anything of vapp. Start reading at Format; kernels/ref defines what each
// kernel computes as plain loops, and files of kernels/cpu with the same stem compute the
// same fast.
package kernels

import "fmt"

// Format is how the elements of a tensor are stored: a plain number type, or blocks of
// quantized numbers that share scales. Block layouts are those of GGUF (ggml-common.h), byte
// for byte.
type Format uint8

// The formats that vapp reads. Invalid is the zero value, so that a missing format is
// detected.
const (
	Invalid Format = iota
	F32            // IEEE 754 binary32
	F16            // IEEE 754 binary16
	BF16           // the upper half of a binary32
	I32            // 32-bit signed integer (token ids, page numbers)
	U32            // 32-bit unsigned integer (bit masks)
	Q8_0           // 32 × int8, one binary16 scale d: x = d·q
	Q4_0           // 32 × 4 bit, one binary16 scale d: x = d·(q−8)
	Q4_1           // 32 × 4 bit, binary16 scale d and minimum m: x = d·q + m
	Q4_K           // 256 × 4 bit, binary16 d and dmin, 8 six-bit scales and minima
	Q6_K           // 256 × 6 bit, 16 int8 scales, one binary16 d
	F8E4M3         // 8-bit float, 4 bits of exponent, no infinities (OCP E4M3)
	F8E5M2         // 8-bit float, 5 bits of exponent (OCP E5M2)
	MXFP4          // 32 × 4-bit float E2M1, one power of two (E8M0): x = 2^(s−127)·q
	Q5_0           // 32 × 5 bit, one binary16 scale d: x = d·(q−16)
	Q5_1           // 32 × 5 bit, binary16 scale d and minimum m: x = d·q + m
	Q2_K           // 256 × 2 bit, binary16 d and dmin, 16 four-bit scales and minima
	Q3_K           // 256 × 3 bit, 16 six-bit scales, one binary16 d
	Q5_K           // 256 × 5 bit, binary16 d and dmin, 8 six-bit scales and minima
	IQ4_NL         // 32 × 4 bit, one binary16 scale d: x = d·table[q]
	U8             // a byte: 4-bit pairs and scales of packed tensors in checkpoints
	I8             // int8 codes; the scales are a separate tensor
	I64            // 64-bit signed integer: shapes of packed tensors
	I4             // 32 × 4 bit, a scale s of at most 16 significant bits and a zero point z below 256: x = s·(q−z)
	IQ4_XS         // 256 × 4 bit, 8 six-bit scales, one binary16 d: x = d·scale·table[q]
	IQ3_XXS        // 256: groups of 4 from a grid of 256, 7 bits of signs for 8, 8 four-bit scales
	IQ3_S          // 256: groups of 4 from a grid of 512, a sign each, 8 four-bit scales
	IQ2_XXS        // 256: groups of 8 from a grid of 256, 7 bits of signs for 8, 8 four-bit scales
	IQ2_XS         // 256: groups of 8 from a grid of 512, 7 bits of signs for 8, 16 four-bit scales
	IQ2_S          // 256: groups of 8 from a grid of 1024, a sign each, 16 four-bit scales
	IQ1_S          // 256: groups of 8 from a grid of 2048, 8 three-bit scales, 8 shifts of ±1/8
	IQ1_M          // 256: groups of 8 from a grid of 2048, 16 three-bit scales, 32 shifts of ±1/8
	TQ1_0          // 256 ternary digits, five in a byte, one binary16 d
	TQ2_0          // 256 × 2 bit, one binary16 d: x = d·(q−1)
	NVFP4          // 16 × 4-bit float E2M1, a scale s in E4M3 last: x = s·q, times a scale of the matrix that is stored apart
	numFormats
)

type shape struct {
	name  string
	elems int // elements a block holds
	bytes int // bytes a block takes
}

var shapes = [numFormats]shape{
	Invalid: {"invalid", 1, 0},
	F32:     {"f32", 1, 4},
	F16:     {"f16", 1, 2},
	BF16:    {"bf16", 1, 2},
	I32:     {"i32", 1, 4},
	U32:     {"u32", 1, 4},
	Q8_0:    {"q8_0", 32, 34},
	Q4_0:    {"q4_0", 32, 18},
	Q4_1:    {"q4_1", 32, 20},
	Q4_K:    {"q4_k", 256, 144},
	Q6_K:    {"q6_k", 256, 210},
	F8E4M3:  {"f8_e4m3", 1, 1},
	F8E5M2:  {"f8_e5m2", 1, 1},
	MXFP4:   {"mxfp4", 32, 17},
	Q5_0:    {"q5_0", 32, 22},
	Q5_1:    {"q5_1", 32, 24},
	Q2_K:    {"q2_k", 256, 84},
	Q3_K:    {"q3_k", 256, 110},
	Q5_K:    {"q5_k", 256, 176},
	IQ4_NL:  {"iq4_nl", 32, 18},
	U8:      {"u8", 1, 1},
	I8:      {"i8", 1, 1},
	I64:     {"i64", 1, 8},
	I4:      {"i4", 32, 20},
	IQ4_XS:  {"iq4_xs", 256, 136},
	IQ3_XXS: {"iq3_xxs", 256, 98},
	IQ3_S:   {"iq3_s", 256, 110},
	IQ2_XXS: {"iq2_xxs", 256, 66},
	IQ2_XS:  {"iq2_xs", 256, 74},
	IQ2_S:   {"iq2_s", 256, 82},
	IQ1_S:   {"iq1_s", 256, 50},
	IQ1_M:   {"iq1_m", 256, 56},
	TQ1_0:   {"tq1_0", 256, 54},
	TQ2_0:   {"tq2_0", 256, 66},
	NVFP4:   {"nvfp4", 16, 9},
}

// String returns the short lower-case name used in plans and logs: "q4_1".
func (f Format) String() string {
	if f < numFormats {
		return shapes[f].name
	}
	return fmt.Sprintf("format(%d)", uint8(f))
}

// Block returns how many elements one block holds and the bytes it takes;
// plain number types are blocks of one element.
func (f Format) Block() (elems, bytes int) {
	if f >= numFormats {
		return 1, 0
	}
	return shapes[f].elems, shapes[f].bytes
}

// Quantized reports whether elements share scales, in their blocks or in a separate tensor.
func (f Format) Quantized() bool {
	return f >= Q8_0 && f < U8 || f == I8 || f >= I4 && f <= NVFP4
}

// Scaled reports whether the format's scales, if a weight has some, are a separate tensor.
func (f Format) Scaled() bool { return f == F8E4M3 || f == F8E5M2 || f == I8 || f == NVFP4 }

// Bytes returns the storage of n elements, n a multiple of the block.
func (f Format) Bytes(n int64) int64 {
	e, b := f.Block()
	return n / int64(e) * int64(b)
}

// Parse is the inverse of String.
func Parse(name string) (Format, bool) {
	for f := F32; f < numFormats; f++ {
		if shapes[f].name == name {
			return f, true
		}
	}
	return Invalid, false
}
