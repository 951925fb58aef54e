package ref

import "math"

// Norm is RMSNorm of one row. With residual it first adds x into residual, in
// float32 and in place, and normalises that, else x:
// y = w · (r / √(mean(r²) + eps)). The squares are summed in float64 and the root
// is taken there; its inverse is rounded to float32, and the two products are
// float32 (Hugging Face LlamaRMSNorm). y may be x. residual may be nil.
func Norm(x, residual, w []float32, eps float32, y []float32) {
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
		y[i] = w[i] * float32(v*inv)
	}
}
