package vision

import (
	"math"

	"vapp.dev/kernels/cpu/pixels"
)

// resampling is whose arithmetic resizes an image. Both resample one axis, round to bytes, and
// resample the other.
type resampling int

const (
	// pillow has weights of 22 bits, and begins with columns where that costs less.
	pillow resampling = iota
	// torchvision has weights of 16 bits, and always begins with rows.
	torchvision
)

// filter is how the lines (rows or columns) of an image are resampled along one axis. It has at most
// 22 bits, so that a sum of bytes times weights fits in 32.
type filter struct {
	pixels.Weights
	most int // weights of a line
}

// lines returns the first line of the source that line i of the result reads, and the line behind
// the last one.
func (f *filter) lines(i int) (from, to int) {
	from = int(f.First[i])
	return from, from + len(f.Of(i))
}

// newFilter returns the bicubic filter from in to out lines: the cubic with a = −1/2, which is
// widened by in/out where that is more than 1 (antialias). Weights are computed in float64, as the C
// code of Pillow and torch does on x86-64: the conversions keep Go from fusing products and sums.
func newFilter(in, out int, by resampling) *filter {
	scale := float64(in) / float64(out)
	wide := max(scale, 1)
	support := 2 * wide
	f := &filter{Weights: pixels.Weights{First: make([]int32, out), End: make([]int32, out)}}
	all := make([]float64, 0, min(out*(2*int(math.Ceil(support))+1), 4*in+5*out))
	largest := 0.0
	for i := range out {
		center := float64((float64(i) + 0.5) * scale)
		from := max(int(float64(center-support)+0.5), 0)
		to := min(int(float64(center+support)+0.5), in)
		begin, sum := len(all), 0.0
		for x := range to - from {
			k := cubic(float64(float64(float64(x+from)-center)+0.5) * float64(1/wide))
			all = append(all, k)
			sum += k
		}
		for x := begin; x < len(all); x++ {
			if sum != 0 {
				all[x] /= sum
			}
			largest = max(largest, all[x])
		}
		f.First[i], f.End[i] = int32(from), int32(len(all))
		f.most = max(f.most, to-from)
	}
	f.Bits = 22
	if by == torchvision {
		// The most bits with which the largest weight is a number of 16 bits.
		for f.Bits = 0; f.Bits < 22 && int(0.5+float64(largest*float64(int(2)<<f.Bits))) < 1<<15; f.Bits++ {
		}
	}
	f.W = make([]int32, len(all))
	for i, k := range all {
		k = float64(k * float64(int(1)<<f.Bits))
		f.W[i] = int32(k + math.Copysign(0.5, k))
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
