package enginetest

import (
	"strings"

	"vapp.dev/kernels"
)

// BoundFloat is the bound of float32 arithmetic. Where K and V are rounded, a token
// of a mixture may be sent to another expert than in the reference: a step in its logits.
func BoundFloat(golden string, kv kernels.Format) GoldenBound {
	switch {
	case rounding(golden):
		return coarse
	case sharp(golden):
		return map[kernels.Format]GoldenBound{
			kernels.F32: {Max: 2e-4, RMS: 1e-5, Gap: 1e-4}, kernels.F16: {Max: 0.1, RMS: 0.01, Gap: 0.02}, kernels.BF16: {Max: 0.6, RMS: 0.07, Gap: 0.15},
		}[kv]
	case sharp(strings.TrimSuffix(golden, "-moe")):
		return map[kernels.Format]GoldenBound{
			kernels.F32: {Max: 3e-4, RMS: 2.5e-5, Gap: 1e-4}, kernels.F16: {Max: 4, RMS: 0.3, Gap: 1.2}, kernels.BF16: {Max: 5, RMS: 0.6, Gap: 3},
		}[kv]
	case Mixture(golden):
		return map[kernels.Format]GoldenBound{
			kernels.F32: {Max: 1e-4, RMS: 1e-5, Gap: 1e-4}, kernels.F16: {Max: 0.25, RMS: 0.01, Gap: 0.05}, kernels.BF16: {Max: 1.2, RMS: 0.05, Gap: 0.25},
		}[kv]
	case Recurrent(golden):
		return map[kernels.Format]GoldenBound{
			kernels.F32: {Max: 5e-4, RMS: 5e-5, Gap: 5e-4}, kernels.F16: {Max: 0.03, RMS: 0.0015, Gap: 0.01}, kernels.BF16: {Max: 0.2, RMS: 0.013, Gap: 0.05},
		}[kv]
	case Tiny(golden):
		return map[kernels.Format]GoldenBound{
			kernels.F32: {Max: 1e-4, RMS: 1e-5, Gap: 1e-4}, kernels.F16: {Max: 0.01, RMS: 0.0015, Gap: 0.01}, kernels.BF16: {Max: 0.1, RMS: 0.013, Gap: 0.05},
		}[kv]
	}
	return map[kernels.Format]GoldenBound{
		kernels.F32: {Max: 1e-3, RMS: 1e-4, Gap: 1e-3}, kernels.F16: {Max: 0.1, RMS: 0.006, Gap: 0.02}, kernels.BF16: {Max: 1, RMS: 0.05, Gap: 0.05},
	}[kv]
}

// BoundBF16 is the bound of products of bf16 numbers summed in float32, in any K/V format:
// twice what the oracle differs by when it rounds activations so.
func BoundBF16(golden string, _ kernels.Format) GoldenBound {
	switch {
	case rounding(golden):
		return coarse
	case sharp(golden):
		return GoldenBound{Max: 1.4, RMS: 0.13, Gap: 0.4}
	case sharp(strings.TrimSuffix(golden, "-moe")):
		return GoldenBound{Max: 6.5, RMS: 0.9, Gap: 3.2}
	case Mixture(golden):
		return GoldenBound{Max: 2.2, RMS: 0.08, Gap: 0.2}
	case Recurrent(golden):
		return GoldenBound{Max: 0.95, RMS: 0.06, Gap: 0.26}
	case Tiny(golden):
		return GoldenBound{Max: 0.2, RMS: 0.03, Gap: 0.2}
	}
	return GoldenBound{Max: 1.25, RMS: 0.13, Gap: 0.25}
}

// Recurrent tells checkpoints with delta nets. Their output is normalised by head: of
// the first tokens, whose state holds little, it is the sign of a product that may be
// near zero, and bf16 inputs of the convolution flip it.
func Recurrent(golden string) bool { return strings.HasPrefix(golden, "tiny-qwen35") }

// sharp tells checkpoints whose queries and keys are normalised and not scaled: on
// random weights their softmax is close to a choice, which rounded keys move. Six such
// layers one after the other, and experts that are chosen by the result, leave little of
// what 16-bit pages would show; the F32 bound is the one that proves the forward.
func sharp(golden string) bool { return golden == "tiny-gemma4" }

// rounding tells checkpoints whose activations are rounded to int8: what is off by a little
// may come to the other side of a code's border, which is a step in the logits.
func rounding(golden string) bool { return golden == "tiny-w8a8" }

// coarse is about twice what rounded K and V, or products of bf16, make of such steps.
var coarse = GoldenBound{Max: 0.35, RMS: 0.06, Gap: 0.15}

// Mixture tells checkpoints with experts.
func Mixture(golden string) bool {
	return strings.HasPrefix(golden, "tiny-gpt-oss") || golden == "tiny-gemma4-moe"
}

// Tiny says whether a golden file belongs to a small random checkpoint.
func Tiny(golden string) bool { return strings.HasPrefix(golden, "tiny-") }
