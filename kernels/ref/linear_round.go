package ref

import "math"

// RoundRow rounds x to int8: codes are the nearest multiples of max |x| / 127, ties to
// even, and the scale is what they are multiples of. Where max |x| is below 2⁻¹⁰⁰ all are
// 0; where x has a NaN or an infinity they are 0 and the scale is NaN.
func RoundRow(x, codes []float32) (scale float32) {
	most := float32(0)
	for _, v := range x {
		if v != v || v > math.MaxFloat32 || v < -math.MaxFloat32 {
			clear(codes[:len(x)])
			return float32(math.NaN())
		}
		most = max(most, v, -v)
	}
	if most < 0x1p-100 {
		clear(codes[:len(x)])
		return 0
	}
	by := 127 / most
	for i, v := range x {
		codes[i] = float32(math.RoundToEven(float64(v * by)))
	}
	return most / 127
}

// LinearRounded is Linear with every row of X rounded by RoundRow first: W8A8 of
// compressed-tensors, as vLLM computes it. codes is room for In elements.
func LinearRounded(a LinearArgs, codes []float32) {
	size := a.Format.Bytes(int64(a.In))
	w := a.Row[:a.In]
	codes = codes[:a.In]
	for r := range a.Rows {
		scale := float64(RoundRow(a.X[r*a.In:(r+1)*a.In], codes))
		for o := a.From; o < a.To; o++ {
			Dequantize(a.Format, a.W[int64(o)*size:int64(o+1)*size], w)
			a.Scales.Apply(o, w)
			bias := 0.0
			if a.Bias != nil {
				bias = float64(a.Bias[o])
			}
			a.Y[r*a.Out+o] = float32(dot(w, codes)*scale + bias)
		}
	}
}
