package ref

import (
	"cmp"
	"math"

	"vapp.dev/kernels"
)

// RoundRow rounds x to int8. codes are the nearest multiples of scale = max |x| / 127, ties
// to even. If max |x| is below 2⁻¹⁰⁰ all codes are 0; if x has a NaN or an infinity they are
// 0 and the scale is NaN.
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

// RoundRowE4M3 rounds x to E4M3 and returns in codes the values of the codes, which are to be
// multiplied by scale = max |x| / 448. Rows that are nearly zero, or have a NaN or an
// infinity, are as in RoundRow.
func RoundRowE4M3(x, codes []float32) (scale float32) {
	scale = RoundRow(x, codes) // for rows that are not finite, or too small
	if scale != scale || scale == 0 {
		return scale
	}
	most := float32(0)
	for _, v := range x {
		most = max(most, v, -v)
	}
	by := maxE4M3 / most
	for i, v := range x {
		codes[i] = e4m3[FloatToE4M3(v*by)]
	}
	return most / maxE4M3
}

// Rounding is the format that LinearRounded rounds rows of X to before the product.
type Rounding struct {
	Format kernels.Format // I8, by RoundRow, or F8E4M3, by RoundRowE4M3
	Group  int            // how many neighbours in a row share a scale; 0: all
}

// WorkSize returns how many elements LinearRounded needs for a row of in elements: its codes
// and their scales.
func (r Rounding) WorkSize(in int) int { return in + len(r.groups(in)) }

// groups returns the ends of the groups in a row of in elements.
func (r Rounding) groups(in int) (ends []int) {
	group := r.Group
	if group == 0 {
		group = in
	}
	for at := 0; at < in; at += group {
		ends = append(ends, min(at+group, in))
	}
	return ends
}

// LinearRounded is Linear with every row of X rounded first: to int8 as in
// compressed-tensors' W8A8, to E4M3 as in vLLM for checkpoints of 8-bit floats. The sum of a
// group's products with codes is multiplied by the group's scale in float64. work has
// to.WorkSize(In) elements.
func LinearRounded(a LinearArgs, to Rounding, work []float32) {
	w, ends := a.Row[:a.In], to.groups(a.In)
	codes, scales := work[:a.In], work[a.In:][:len(ends)]
	for r := range a.Rows {
		x, from := a.row(r), 0
		for g, end := range ends {
			if to.Format == kernels.F8E4M3 {
				scales[g] = RoundRowE4M3(x[from:end], codes[from:end])
			} else {
				scales[g] = RoundRow(x[from:end], codes[from:end])
			}
			from = end
		}
		for o := a.From; o < a.To; o++ {
			a.weights(o, w)
			sum, from := 0.0, 0
			for g, end := range ends {
				sum += dot(w[from:end], codes[from:end]) * float64(scales[g])
				from = end
			}
			if a.Bias != nil {
				sum += float64(a.Bias[o])
			}
			a.Y[r*cmp.Or(a.StrideY, a.Out)+o] = float32(sum)
		}
	}
}
