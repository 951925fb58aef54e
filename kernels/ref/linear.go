package ref

import "vapp.dev/kernels"

// LinearArgs are the operands of Linear.
type LinearArgs struct {
	Rows, In, Out int
	X             []float32      // [Rows, In]
	W             []byte         // [Out, In], every row stored as Format
	Format        kernels.Format // any that Dequantize reads
	Scales        *Scales        // of an 8-bit float; nil: none
	Bias          []float32      // [Out], or nil
	Y             []float32      // [Rows, Out]
	From, To      int            // the output features to compute; the others stay as they are
	Row           []float32      // room for one row of W: In elements
}

// Linear sets Y = X·Wᵀ + Bias. The products of two float32 are exact in float64,
// where they are summed in the order of the input features; the bias is added
// there too and the sum rounded to float32 once. A row of W is dequantized once
// for all rows of X.
func Linear(a LinearArgs) {
	size := a.Format.Bytes(int64(a.In))
	w := a.Row[:a.In]
	for o := a.From; o < a.To; o++ {
		Dequantize(a.Format, a.W[int64(o)*size:int64(o+1)*size], w)
		a.Scales.Apply(o, w)
		bias := 0.0
		if a.Bias != nil {
			bias = float64(a.Bias[o])
		}
		r := 0
		for ; r+4 <= a.Rows; r += 4 {
			for i, s := range dot4(w, a.X[r*a.In:(r+4)*a.In]) {
				a.Y[(r+i)*a.Out+o] = float32(s + bias)
			}
		}
		for ; r < a.Rows; r++ {
			a.Y[r*a.Out+o] = float32(dot(w, a.X[r*a.In:(r+1)*a.In]) + bias)
		}
	}
}

// dot is Σ w·x in float64, in order.
func dot(w, x []float32) float64 {
	x = x[:len(w)]
	s := 0.0
	for i, v := range w {
		s += float64(v) * float64(x[i])
	}
	return s
}

// dot4 is dot of w with four rows that lie one after the other: the same sums,
// four at a time because one chain of additions leaves a core idle.
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
