package ref

import "math"

// SwiGLU computes y = silu(gate) · up of one row. silu(g) = g / (1 + e^−g) is computed in
// float64 and rounded to float32, the product is float32. y may be gate.
func SwiGLU(gate, up, y []float32) {
	for i, g := range gate {
		y[i] = SiLU(g) * up[i]
	}
}

// SiLU returns x / (1 + e^−x), in float64, rounded once.
func SiLU(x float32) float32 { return float32(float64(x) / (1 + math.Exp(-float64(x)))) }

// GELUTanh returns the tanh form of GELU (PyTorch's approximate="tanh"), in float64, rounded
// once.
func GELUTanh(x float32) float32 {
	v := float64(x)
	return float32(0.5 * v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v))))
}

// Sigmoid returns 1 / (1 + e^−x), in float64, rounded once.
func Sigmoid(x float32) float32 { return float32(1 / (1 + math.Exp(-float64(x)))) }

// GELU returns 0.5 · x · (1 + erf(x/√2)), in float64, rounded once.
func GELU(x float32) float32 {
	return float32(0.5 * float64(x) * (1 + math.Erf(float64(x)/math.Sqrt2)))
}

// GeGLU computes y = GELUTanh(gate) · up of one row. y may be gate.
func GeGLU(gate, up, y []float32) {
	for i, g := range gate {
		y[i] = GELUTanh(g) * up[i]
	}
}

// ClampedGLU is the gate of gpt-oss: gate is clamped at limit from above, up on both sides,
// and y = (up + shift) · gate · sigmoid(alpha · gate). y may be gate.
func ClampedGLU(gate, up []float32, limit, alpha, shift float32, y []float32) {
	for i, g := range gate {
		u := up[i]
		if limit > 0 {
			g, u = min(g, limit), max(-limit, min(u, limit))
		}
		y[i] = (u + shift) * (g * Sigmoid(g*alpha))
	}
}

// Softcap returns cap · tanh(x / cap), in float64, rounded once.
func Softcap(x, limit float32) float32 {
	return float32(float64(limit) * math.Tanh(float64(x)/float64(limit)))
}
