package ref

import "math"

// SwiGLU is y = silu(gate) · up of one row. silu(g) = g / (1 + e^−g) is computed
// in float64 and rounded to float32, the product is float32. y may be gate.
func SwiGLU(gate, up, y []float32) {
	for i, g := range gate {
		y[i] = float32(float64(g)/(1+math.Exp(-float64(g)))) * up[i]
	}
}
