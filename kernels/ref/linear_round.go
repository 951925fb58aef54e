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

// RoundRowE4M3 rounds x to E4M3 and gives back what the codes stand for: multiples of a
// scale, max |x| / 448 or the one that is given, saturating there. Rows that are all but
// zero, or have a NaN or an infinity, are as RoundRow's.
func RoundRowE4M3(x, codes []float32, given float32) (scale float32) {
	scale = RoundRow(x, codes) // for what is not finite, or too small
	if scale != scale || scale == 0 && given == 0 {
		return scale
	}
	most := float32(0)
	for _, v := range x {
		most = max(most, v, -v)
	}
	by := 1 / given
	if scale = given; given == 0 {
		by, scale = maxE4M3/most, most/maxE4M3
	}
	for i, v := range x {
		codes[i] = e4m3[FloatToE4M3(v*by)]
	}
	return scale
}

// LinearRounded is Linear with every row of X rounded by RoundRow first: W8A8 of
// compressed-tensors, as vLLM computes it. codes is room for In elements.
func LinearRounded(a LinearArgs, codes []float32) {
	w := a.Row[:a.In]
	codes = codes[:a.In]
	for r := range a.Rows {
		scale := float64(RoundRow(a.X[r*a.In:(r+1)*a.In], codes))
		for o := a.From; o < a.To; o++ {
			a.weights(o, w)
			bias := 0.0
			if a.Bias != nil {
				bias = float64(a.Bias[o])
			}
			a.Y[r*a.Out+o] = float32(dot(w, codes)*scale + bias)
		}
	}
}
