package cpu

import (
	"slices"
	"strings"

	"vapp.dev/kernels"
)

// int8Suffix ends the names of variants whose x is int8.
const int8Suffix = "+int8"

// The constants of native/linear/int8/int8.h; linear.go checks that they are equal.
const (
	int8Group = 32  // inputs of x that share a scale
	int8Tile  = 6   // rows of x in a tile
	int8Words = 12  // dwords of a row for each group; int15Words with two planes
	int8Block = 512 // inputs that are unpacked at once

	int15Tile  = 3
	int15Words = 20
)

var (
	int8Variants = []string{"generic", "avx2", "avx512", "avx512bf16", "neon", "dotprod", "i8mm"}
	// int15Variants round x to 15 bits for weights of int8Formats.
	int15Variants = []string{"avx512bf16", "dotprod", "i8mm"}
	int8Formats   = []kernels.Format{kernels.Q8_0, kernels.Q4_0, kernels.Q4_1, kernels.Q4_K, kernels.Q6_K,
		kernels.Q5_0, kernels.Q5_1, kernels.Q5_K, kernels.I4}
)

// Int8 returns the name of the variant of Linear that rounds x to int8, 32 inputs to a scale,
// and multiplies weights stored as f in integers; false if f is multiplied as floats. All such
// variants give the same bits. That of amx is avx512bf16's: with a scale for every 32 inputs,
// vectors (VPDPBUSD) are faster than tiles of bytes.
func Int8(variant string, f kernels.Format) (string, bool) {
	if variant == "amx" {
		variant = "avx512bf16"
	}
	ok := slices.Contains(int8Variants, variant) && slices.Contains(int8Formats, f)
	return variant + int8Suffix, ok
}

// integers returns the number of int8 planes to which a variant rounds x for weights of f; 0:
// it multiplies floats.
func integers(variant string, f kernels.Format) int {
	switch {
	case strings.HasSuffix(variant, int8Suffix):
		return 1
	case slices.Contains(int15Variants, variant) && slices.Contains(int8Formats, f):
		return 2
	}
	return 0
}

// integerTile returns how many rows of x are multiplied at once, and the bytes of one.
func integerTile(planes, in int) (tile, row int64) {
	groups := int64(in) / int8Group
	if planes == 2 {
		return int15Tile, groups * int15Words * 4
	}
	return int8Tile, groups * int8Words * 4
}

// integerWorkspace is LinearWorkspace for x in `planes` planes.
func integerWorkspace(planes, maxRows, in int) (shared, perThread int64) {
	tile, row := integerTile(planes, in)
	return roundUp(roundUp(int64(maxRows), tile)*row, 64), roundUp(max(row, int8Block*panelRows), 64)
}
