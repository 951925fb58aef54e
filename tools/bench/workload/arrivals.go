package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Arrivals defines the send times of requests.
type Arrivals struct {
	// Rate is in requests per second; +Inf sends all at once.
	Rate float64
	// Burstiness is the shape of the gamma distribution of the gaps: 1 is a Poisson
	// process, less is burstier, more is more even.
	Burstiness float64
	// RampUp is "", "linear" or "exponential": the rate goes from Start to End over the run.
	RampUp     string
	Start, End float64
}

// Check returns what is invalid, nil where nothing is.
func (a Arrivals) Check() error {
	positive := func(x float64) bool { return x > 0 && !math.IsInf(x, 0) }
	switch {
	case !(a.Rate > 0):
		return fmt.Errorf("request rate %v: give requests per second above 0, or inf", a.Rate)
	case !positive(a.Burstiness):
		return fmt.Errorf("burstiness %v: give a number above 0; 1 is a Poisson process", a.Burstiness)
	case a.RampUp == "":
		return nil
	case a.RampUp != "linear" && a.RampUp != "exponential":
		return fmt.Errorf("ramp-up strategy %q: give linear or exponential", a.RampUp)
	case !math.IsInf(a.Rate, 1):
		return fmt.Errorf("ramp-up strategy %s: it sets the rate itself; leave the request rate at inf", a.RampUp)
	case !(a.Start >= 0) || !positive(a.End) || a.End <= a.Start:
		return fmt.Errorf("ramp-up from %v to %v requests per second: the first must be 0 or more and below the second", a.Start, a.End)
	case a.RampUp == "exponential" && a.Start == 0:
		return fmt.Errorf("ramp-up from 0: an exponential one cannot start there; give a rate above 0")
	}
	return nil
}

// Times returns the send times of n requests in seconds from the start, ascending. At a constant
// rate they are scaled so that the last one is n/rate.
func (a Arrivals) Times(n int, seed int64) []float64 {
	out := make([]float64, n)
	if a.RampUp == "" && math.IsInf(a.Rate, 1) {
		return out
	}
	r, at := generator(seed, streamArrivals), 0.0
	for i := range out {
		if rate := a.rate(i, n); rate > 0 {
			at += gamma(r, a.Burstiness) / (rate * a.Burstiness)
		}
		out[i] = at
	}
	if last := at; a.RampUp == "" && last > 0 {
		for i := range out {
			out[i] *= float64(n) / a.Rate / last
		}
	}
	return out
}

// rate returns the request rate of request i of n.
func (a Arrivals) rate(i, n int) float64 {
	done := float64(i) / float64(max(n-1, 1))
	switch a.RampUp {
	case "linear":
		// A rate of 0 would never send the first request; it is sent at once.
		return a.Start + (a.End-a.Start)*done
	case "exponential":
		return a.Start * math.Pow(a.End/a.Start, done)
	}
	return a.Rate
}

// gamma draws from Gamma(shape, 1) by the method of Marsaglia and Tsang (2000): a rejection method
// on the cube of a normal variate. For shape below 1, a variate of shape+1 is scaled by
// U^(1/shape).
func gamma(r *rand.Rand, shape float64) float64 {
	boost := 1.0
	if shape < 1 {
		boost = math.Pow(1-r.Float64(), 1/shape)
		shape++
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		if math.Log(1-r.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return boost * d * v
		}
	}
}
