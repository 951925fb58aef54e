package report

import (
	"math"
	"slices"
)

// Stats are the statistics of one metric, in milliseconds.
type Stats struct {
	Mean, Median, Std float64
	// Percentiles are in the requested order.
	Percentiles []float64
}

// statsOf computes the statistics of a list of seconds; an empty list counts as a single 0.
func statsOf(seconds, percentiles []float64) Stats {
	x := []float64{0}
	if len(seconds) > 0 {
		x = make([]float64, len(seconds))
		for i, s := range seconds {
			x[i] = s * 1000
		}
		slices.Sort(x)
	}
	s := Stats{Mean: mean(x), Median: percentile(x, 50)}
	for _, v := range x {
		s.Std += (v - s.Mean) * (v - s.Mean)
	}
	s.Std = math.Sqrt(s.Std / float64(len(x)))
	for _, p := range percentiles {
		s.Percentiles = append(s.Percentiles, percentile(x, p))
	}
	return s
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// percentile returns a percentile of a sorted, non-empty list, with linear interpolation between
// neighbours (numpy's default, method 7 of Hyndman and Fan).
func percentile(sorted []float64, p float64) float64 {
	at := p / 100 * float64(len(sorted)-1)
	i := int(at)
	if i >= len(sorted)-1 {
		return sorted[len(sorted)-1]
	}
	t, a, b := at-float64(i), sorted[i], sorted[i+1]
	if t >= 0.5 { // interpolate from the nearer end, as numpy does
		return b - (b-a)*(1-t)
	}
	return a + (b-a)*t
}

// Percentile returns a percentile of seconds, in seconds.
func Percentile(seconds []float64, p float64) float64 {
	if len(seconds) == 0 {
		return 0
	}
	return percentile(slices.Sorted(slices.Values(seconds)), p)
}
