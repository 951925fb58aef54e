package cpu

import (
	"slices"

	"vapp.dev/kernels"
)

// int8Suffix is what the variants have in their names whose x is int8.
const int8Suffix = "+int8"

// The constants of linear_int8.h; linear.go keeps them equal.
const (
	int8Group = 32  // inputs of x that share a scale
	int8Tile  = 6   // rows of x in a tile
	int8Words = 12  // dwords that a group of a row takes
	int8Block = 512 // inputs that are unpacked at once
)

var (
	int8Variants = []string{"generic", "avx2", "avx512", "avx512bf16", "amx"}
	int8Formats  = []kernels.Format{kernels.Q8_0, kernels.Q4_0, kernels.Q4_1, kernels.Q4_K, kernels.Q6_K,
		kernels.Q5_0, kernels.Q5_1, kernels.Q5_K}
)

// Int8 names the variant of Linear that rounds x to int8, 32 inputs to a scale, and
// multiplies weights stored as f in integers; false where f is multiplied as floats.
// All such variants give the same bits.
func Int8(variant string, f kernels.Format) (string, bool) {
	ok := slices.Contains(int8Variants, variant) && slices.Contains(int8Formats, f)
	return variant + int8Suffix, ok
}

// int8Row is the room of a row of x, in bytes.
func int8Row(in int) int64 { return int64(in) / int8Group * int8Words * 4 }
