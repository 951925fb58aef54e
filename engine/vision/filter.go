package vision

import "math"

// bits is the precision of weights: a pixel is a sum of bytes times weights, which are whole numbers
// of 1/2²². Pillow calls it PRECISION_BITS.
const bits = 22

// filter is how the lines (rows or columns) of an image are resampled along one axis: line i of the
// result is the sum of lines first[i] and following times weights(i).
type filter struct {
	first []int32
	end   []int32 // of weights: those of line i are w[end[i-1]:end[i]]
	w     []uint64
	most  int // weights of a line
}

func (f *filter) weights(i int) []uint64 {
	if i == 0 {
		return f.w[:f.end[0]]
	}
	return f.w[f.end[i-1]:f.end[i]]
}

// lines returns the first line of the source that line i of the result reads, and the line behind
// the last one.
func (f *filter) lines(i int) (from, to int) {
	from = int(f.first[i])
	return from, from + len(f.weights(i))
}

// newFilter returns Pillow's bicubic filter from in to out lines: the cubic with a = −1/2, which is
// widened by in/out where that is more than 1 (antialias). Weights are computed in float64, as
// Pillow's C code does on x86-64: the conversions keep Go from fusing products and sums.
func newFilter(in, out int) *filter {
	scale := float64(in) / float64(out)
	wide := max(scale, 1)
	support := 2 * wide
	f := &filter{first: make([]int32, out), end: make([]int32, out)}
	w := make([]float64, 0, 2*int(math.Ceil(support))+1)
	f.w = make([]uint64, 0, min(out*cap(w), 4*in+5*out))
	for i := range out {
		center := float64((float64(i) + 0.5) * scale)
		from := max(int(float64(center-support)+0.5), 0)
		to := min(int(float64(center+support)+0.5), in)
		w = w[:0]
		sum := 0.0
		for x := range to - from {
			k := cubic(float64(float64(float64(x+from)-center)+0.5) * float64(1/wide))
			w = append(w, k)
			sum += k
		}
		for _, k := range w {
			if sum != 0 {
				k /= sum
			}
			k = float64(k * (1 << bits))
			f.w = append(f.w, uint64(int64(k+math.Copysign(0.5, k))))
		}
		f.first[i], f.end[i] = int32(from), int32(len(f.w))
		f.most = max(f.most, len(w))
	}
	return f
}

// cubic is the convolution kernel at distance x.
func cubic(x float64) float64 {
	const a = -0.5
	x = math.Abs(x)
	switch {
	case x < 1:
		return float64(float64(float64(float64(float64((a+2)*x)-(a+3))*x)*x) + 1)
	case x < 2:
		return float64(float64(float64(float64(float64(float64(x-5)*x)+8)*x)-4) * a)
	}
	return 0
}
