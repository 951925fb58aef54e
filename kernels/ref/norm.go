package ref

import "math"

// Norm computes RMSNorm of one row. With residual it first adds x into residual, in float32
// and in place, and normalises the sum, else x: y = w · (r / √(mean(r²) + eps)). The sum of
// squares and the root are float64; the inverse of the root is rounded to float32, and the
// two products are float32 (Hugging Face LlamaRMSNorm). y may be x. residual may be nil; a
// nil w means ones.
func Norm(x, residual, w []float32, eps float32, y []float32) {
	NormOffset(x, residual, w, 0, eps, y)
}

// NormOffset is Norm with weights offset + w, added in float32 (1 + w if a checkpoint stores
// weights around zero).
func NormOffset(x, residual, w []float32, offset, eps float32, y []float32) {
	r := x
	if residual != nil {
		for i := range residual {
			residual[i] += x[i]
		}
		r = residual
	}
	sum := 0.0
	for _, v := range r {
		sum += float64(v) * float64(v)
	}
	inv := float32(1 / math.Sqrt(sum/float64(len(r))+float64(eps)))
	for i, v := range r {
		n := float32(v * inv)
		if w != nil {
			n *= offset + w[i]
		}
		y[i] = n
	}
}

// LayerNorm computes y = w · (x − mean) / √(var + eps) + b of one row, with mean and variance
// in float64. y may be x; a nil w means ones, a nil b zeros.
func LayerNorm(x, w, b []float32, eps float32, y []float32) {
	n, mean, vari := float64(len(x)), 0.0, 0.0
	for _, v := range x {
		mean += float64(v)
	}
	mean /= n
	for _, v := range x {
		d := float64(v) - mean
		vari += d * d
	}
	inv := 1 / math.Sqrt(vari/n+float64(eps))
	for i, v := range x {
		y[i] = float32((float64(v) - mean) * inv)
		if w != nil {
			y[i] *= w[i]
		}
		if b != nil {
			y[i] += b[i]
		}
	}
}

// Add adds x to into, in float32.
func Add(into, x []float32) {
	for i, v := range x {
		into[i] += v
	}
}
