package enginetest

import (
	"strings"

	"vapp.dev/kernels"
)

// tower ends the names of checkpoints with a vision tower, whose recorded prompts have images.
const tower = "-tower"

// BoundTower is the bound of a tower's output, in units of the root mean square of the encoded rows:
// of float32 arithmetic, or of bf16 products.
func BoundTower(bf16 bool) GoldenBound {
	if bf16 {
		return GoldenBound{Max: 0.17, RMS: 0.02}
	}
	return GoldenBound{Max: 5e-5, RMS: 5e-6}
}

// Exact reports whether a bound is that of float32 arithmetic for a golden.
func Exact(golden string, limit func(string, kernels.Format) GoldenBound) bool {
	return limit(golden, kernels.F32) == BoundFloat(golden, kernels.F32)
}

// BoundFloat is the bound of float32 arithmetic. If K and V are rounded, a mixture-of-experts
// model may route a token to another expert than the reference, which changes its logits by a
// jump.
func BoundFloat(golden string, kv kernels.Format) GoldenBound {
	if golden == "tiny-gemma4"+tower && kv == kernels.F32 {
		return GoldenBound{Max: 3e-4, RMS: 2.5e-5, Gap: 1e-4} // its softmax chooses among images too
	}
	golden = strings.TrimSuffix(golden, tower)
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
	case Mixture(golden) && Recurrent(golden):
		return map[kernels.Format]GoldenBound{
			kernels.F32: {Max: 5e-4, RMS: 5e-5, Gap: 5e-4}, kernels.F16: {Max: 0.25, RMS: 0.01, Gap: 0.05}, kernels.BF16: {Max: 1.2, RMS: 0.05, Gap: 0.25},
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

// BoundBF16 is the bound of bf16 products summed in float32, with any K/V format: twice the
// difference of the oracle when it rounds its activations to bf16.
func BoundBF16(golden string, _ kernels.Format) GoldenBound {
	switch {
	case rounding(golden):
		return coarse
	case golden == "tiny-gemma4"+tower:
		return GoldenBound{Max: 1.9, RMS: 0.19, Gap: 0.85}
	case golden == "tiny-gemma4-moe"+tower:
		return GoldenBound{Max: 3.8, RMS: 0.24, Gap: 1}
	case golden == "tiny-qwen35"+tower:
		return GoldenBound{Max: 1.5, RMS: 0.06, Gap: 0.26}
	case golden == "tiny-gemma4-e":
		return GoldenBound{Max: 1.8, RMS: 0.13, Gap: 0.4}
	case sharp(golden):
		return GoldenBound{Max: 1.4, RMS: 0.13, Gap: 0.4}
	case sharp(strings.TrimSuffix(golden, "-moe")):
		return GoldenBound{Max: 6.5, RMS: 0.9, Gap: 3.2}
	case golden == "tiny-glm4-moe": // another group of experts changes all of them
		return GoldenBound{Max: 6, RMS: 0.2, Gap: 1.6}
	case golden == "tiny-deepseek-v3": // it has groups too
		return GoldenBound{Max: 2.2, RMS: 0.08, Gap: 0.4}
	case Mixture(golden) && Recurrent(golden):
		return GoldenBound{Max: 2.2, RMS: 0.08, Gap: 0.26}
	case Mixture(golden):
		return GoldenBound{Max: 2.2, RMS: 0.08, Gap: 0.2}
	case Recurrent(golden):
		return GoldenBound{Max: 0.95, RMS: 0.06, Gap: 0.26}
	case Tiny(golden):
		return GoldenBound{Max: 0.2, RMS: 0.03, Gap: 0.2}
	}
	return GoldenBound{Max: 1.25, RMS: 0.13, Gap: 0.25}
}

// BoundCUDA is the bound of backend cuda, which also stores results of products in bf16. It is that of bf16 products, but where
// another expert follows from the second rounding, or a large difference of one row: there it is half more than was measured.
func BoundCUDA(golden string, kv kernels.Format) GoldenBound {
	switch golden {
	case "tiny-mixtral":
		return GoldenBound{Max: 6, RMS: 0.21, Gap: 1.1}
	case "tiny-w8a8-moe":
		return GoldenBound{Max: 2.2, RMS: 0.1, Gap: 0.15}
	case "tiny-qwen2-gguf":
		return GoldenBound{Max: 0.36, RMS: 0.03, Gap: 0.2}
	}
	return BoundBF16(golden, kv)
}

// Recurrent reports whether a checkpoint has delta nets. Their output is normalized by head. For
// the first tokens, whose state is small, the normalized output is the sign of a product that
// may be near zero, and bf16 inputs of the convolution flip it.
func Recurrent(golden string) bool {
	return strings.HasPrefix(golden, "tiny-qwen35") || strings.HasPrefix(golden, "tiny-qwen3-next")
}

// sharp reports whether a checkpoint normalizes queries and keys without a scale. On random
// weights its softmax is almost one-hot, and rounded keys change the selected position. After
// six such layers, and experts routed by their output, results with 16-bit pages show little;
// the F32 bound is the one that proves the forward pass.
func sharp(golden string) bool { return golden == "tiny-gemma4" || golden == "tiny-gemma4-e" }

// rounding reports whether a checkpoint rounds activations to int8. A small difference may then
// round to the next code, which changes the logits by a jump.
func rounding(golden string) bool { return strings.HasPrefix(golden, "tiny-w8a8") }

// coarse is the bound for such jumps: about twice those that rounded K and V or bf16 products
// cause.
var coarse = GoldenBound{Max: 0.35, RMS: 0.06, Gap: 0.15}

// Mixture reports whether a checkpoint has experts.
func Mixture(golden string) bool {
	return strings.HasPrefix(golden, "tiny-gpt-oss") || golden == "tiny-mixtral" || golden == "tiny-olmoe" || strings.HasPrefix(golden, "tiny-qwen3-next") || golden == "tiny-llama4" || golden == "tiny-granite4-h" || strings.HasPrefix(golden, "tiny-deepseek") || strings.Contains(golden, "-moe")
}

// RunsOn reports whether a backend runs a small checkpoint. Mamba-2 layers run on ref; the other
// backends plan them.
func RunsOn(golden, backend string) bool { return golden != "tiny-granite4-h" || backend == "ref" }

// Tiny reports whether a golden file belongs to a small random checkpoint.
func Tiny(golden string) bool { return strings.HasPrefix(golden, "tiny-") }
