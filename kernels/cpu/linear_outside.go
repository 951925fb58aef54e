package cpu

import (
	"slices"
	"strings"

	"vapp.dev/kernels"
)

// outsideSuffix ends the name of the variant of amx that multiplies exact codes and scales sums.
const outsideSuffix = "+outside"

// The constants of native/linear/amx_quant.h; linear.go checks that they are equal.
const (
	quantChunk  = 16 // row tiles of a chunk
	quantSpan   = 64 // k tiles of a chunk
	quantPanels = 16 // panels whose sums wait for the next k tiles
	quantFew    = 4  // the most rows that vectors multiply

	// quantWorkBytes has the unpacked k tiles, their scales and minima, and their sums.
	quantWorkBytes = amxBlock*panelRows*2 + 2*amxBlock/amxK*panelRows*4 + amxBlock/amxK*amxRows*amxRows*4
)

var outsideFormats = []kernels.Format{kernels.Q8_0, kernels.Q4_0, kernels.Q4_1, kernels.Q4_K, kernels.IQ4_NL, kernels.IQ4_XS, kernels.MXFP4, kernels.I4}

// Outside returns the name of the variant of Linear that multiplies the exact codes of weights
// stored as f and scales the sums of 32 inputs: it reads weights at a higher rate and multiplies
// many rows at a lower one. Its packed weights are those of the variant. It returns false if the
// variant has no such kernel for f.
func Outside(variant string, f kernels.Format) (string, bool) {
	if variant != "amx" || !slices.Contains(outsideFormats, f) {
		return variant, false
	}
	return variant + outsideSuffix, true
}

// tiled reports whether a variant multiplies quantized weights of f on tiles of bf16, and
// whether it scales sums.
func tiled(variant string, f kernels.Format) (ok, outside bool) {
	base, outside := strings.CutSuffix(variant, outsideSuffix)
	return base == "amx" && f != kernels.F32 && f != kernels.F16 && f != kernels.BF16, outside
}

// tiledRows returns the bytes of 16 rows of x.
func tiledRows(outside bool, in int) int64 {
	each := int64(amxRows * amxK * 2)
	if outside {
		each += amxRows * 4
	}
	return roundUp(int64(in), amxK) / amxK * each
}

// tiledWorkspace is LinearWorkspace for quantized weights on tiles: each thread has the unpacked
// weights and the sums of its panels, or x of few rows.
func tiledWorkspace(outside bool, maxRows, in int) (shared, perThread int64) {
	tiles := (int64(maxRows) + amxRows - 1) / amxRows
	panels := int64(1)
	if in > quantSpan*amxK && tiles > 2 {
		panels = quantPanels
	}
	sums := panels * roundUp(min(tiles, quantChunk), 2) * amxRows * panelRows * 4
	few := int64(min(maxRows, quantFew)) * (roundUp(int64(in), amxK)*4 + roundUp(int64(in), amxK)/amxK*4)
	return tiles * tiledRows(outside, in), roundUp(max(quantWorkBytes+sums, few), 64)
}
