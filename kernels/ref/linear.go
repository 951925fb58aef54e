package ref

import (
	"cmp"

	"vapp.dev/kernels"
)

// LinearArgs are the operands of Linear.
type LinearArgs struct {
	Rows, In, Out int
	X             []float32      // [Rows, In]
	W             []byte         // [Out, In], every row stored as Format
	Format        kernels.Format // any that Dequantize reads
	Scales        *Scales        // of an 8-bit float; nil: none
	Bias          []float32      // [Out], or nil
	Y             []float32      // [Rows, Out]
	From, To      int            // the range of output features to compute; the others are unchanged
	StrideX       int            // elements from a row of X to the next; 0: In
	StrideY       int            // of Y; 0: Out
	Row           []float32      // scratch memory for Together rows of W, of In elements each, or for one
}

// Together is how many rows of W Linear dequantizes at once, if Row is long enough.
const Together = 4

// Linear sets Y = X·Wᵀ + Bias. The products of two float32 are exact in float64, where they
// are summed in the order of the input features. The bias is added in float64 too, and the
// sum is rounded to float32 once. A row of W is dequantized once for all rows of X.
func Linear(a LinearArgs) {
	bias := func(o int) float64 {
		if a.Bias == nil {
			return 0
		}
		return float64(a.Bias[o])
	}
	o, strideY := a.From, cmp.Or(a.StrideY, a.Out)
	if len(a.Row) >= Together*a.In {
		for ; o+Together <= a.To; o += Together {
			for k := range Together {
				a.weights(o+k, a.Row[k*a.In:(k+1)*a.In])
			}
			for r := range a.Rows {
				for k, s := range dot4(a.row(r), a.Row[:Together*a.In]) {
					a.Y[r*strideY+o+k] = float32(s + bias(o+k))
				}
			}
		}
	}
	for ; o < a.To; o++ {
		w := a.Row[:a.In]
		a.weights(o, w)
		for r := range a.Rows {
			a.Y[r*strideY+o] = float32(dot(w, a.row(r)) + bias(o))
		}
	}
}

// row returns row r of X.
func (a *LinearArgs) row(r int) []float32 { return a.X[r*cmp.Or(a.StrideX, a.In):][:a.In] }

// weights writes the dequantized row o of W to w.
func (a *LinearArgs) weights(o int, w []float32) {
	size := a.Format.Bytes(int64(a.In))
	Dequantize(a.Format, a.W[int64(o)*size:int64(o+1)*size], w)
	a.Scales.Apply(o, w)
}

// dot returns Σ w·x in float64, in order.
func dot(w, x []float32) float64 {
	x = x[:len(w)]
	s := 0.0
	for i, v := range w {
		s += float64(v) * float64(x[i])
	}
	return s
}

// dot4 returns dot of w with four consecutive rows: the same sums, since a product is exact
// in either order of its factors. Four sums at a time keep a core busier than one chain of
// additions.
func dot4(w, x []float32) [4]float64 {
	n := len(w)
	x0, x1, x2, x3 := x[:n], x[n:][:n], x[2*n:][:n], x[3*n:][:n]
	var s0, s1, s2, s3 float64
	for i, v := range w {
		u := float64(v)
		s0 += u * float64(x0[i])
		s1 += u * float64(x1[i])
		s2 += u * float64(x2[i])
		s3 += u * float64(x3[i])
	}
	return [4]float64{s0, s1, s2, s3}
}
