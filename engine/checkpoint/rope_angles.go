package checkpoint

import "math"

// RopeAngles defines a rotary embedding: dimensions i and i+len(InvFreq) of a head rotate together
// by position · InvFreq[i] radians, and cos and sin are multiplied by Scale.
type RopeAngles struct {
	InvFreq []float32
	Scale   float32
}

// Rope returns the rotary embedding of a layer type. If all layers share one, kind is ignored. A
// type that RopeByLayerType lacks is an error.
func (c Config) Rope(kind string) (Rope, error) {
	if c.RopeByLayerType == nil {
		return Rope{Theta: c.RopeTheta, PartialRotaryFactor: c.PartialRotaryFactor, Scaling: c.RopeScaling}, nil
	}
	r, ok := c.RopeByLayerType[kind]
	if !ok {
		return Rope{}, fault("config", "rope_parameters."+kind, "is missing")
	}
	return r, nil
}

// Angles returns the frequencies for heads of size headDim. Rope types are those of transformers'
// ROPE_INIT_FUNCTIONS: default, linear and llama3 as in RopeInvFreq; "yarn" (Peng et al. 2023,
// arXiv 2309.00071); "proportional". The first four rotate the first PartialRotaryFactor of the
// dimensions, and InvFreq is shorter by that factor. "proportional" pairs the dimensions of the
// whole head, rotates the first PartialRotaryFactor of the pairs and gives the others frequency 0.
func (r Rope) Angles(headDim int) (RopeAngles, error) {
	dim := int(float64(headDim) * r.PartialRotaryFactor)
	switch r.Scaling.Type {
	case "yarn":
		if dim < 2 || dim%2 != 0 {
			break
		}
		if r.Theta <= 1 {
			return RopeAngles{}, fault("config", "rope_theta", "is %v; yarn needs more than 1", r.Theta)
		}
		return RopeAngles{r.yarn(dim), float32(r.Scaling.attentionFactor())}, nil
	case "proportional":
		if headDim < 2 || headDim%2 != 0 {
			break
		}
		return RopeAngles{r.proportional(headDim), 1}, nil
	}
	if dim < 2 || dim%2 != 0 {
		return RopeAngles{}, fault("config", "partial_rotary_factor", "is %v, which leaves %d of a head's %d dimensions; an even number must rotate", r.PartialRotaryFactor, dim, headDim)
	}
	plain := Config{HeadDim: dim, RopeTheta: r.Theta, RopeScaling: r.Scaling, PartialRotaryFactor: 1}
	inv, err := plain.RopeInvFreq()
	return RopeAngles{inv, 1}, err
}

// proportional is transformers' _compute_proportional_rope_parameters: the exponents run over the
// whole head, and only the first pairs have a frequency other than 0.
func (r Rope) proportional(headDim int) []float32 {
	out := make([]float32, headDim/2)
	factor := r.Scaling.Factor
	if factor == 0 {
		factor = 1
	}
	for i := range min(r.RotaryDim(headDim)/2, len(out)) {
		out[i] = float32(math.Pow(r.Theta, -2*float64(i)/float64(headDim)) / factor)
	}
	return out
}

// RotaryDim returns how many of a head's dimensions rotate: the first RotaryDim/2 of each half.
func (r Rope) RotaryDim(headDim int) int {
	return 2 * int(math.Floor(r.PartialRotaryFactor*float64(headDim)/2))
}

// attentionFactor returns transformers' factor on cos and sin of a yarn rope: 0.1 · ln(Factor) + 1
// unless the config sets it.
func (s RopeScaling) attentionFactor() float64 {
	mscale := func(m float64) float64 {
		if s.Factor <= 1 {
			return 1
		}
		return 0.1*m*math.Log(s.Factor) + 1
	}
	switch {
	case s.AttentionFactor != 0:
		return s.AttentionFactor
	case s.MScale != 0 && s.MScaleAllDim != 0:
		return mscale(s.MScale) / mscale(s.MScaleAllDim)
	}
	return mscale(1)
}

// yarn is transformers' _compute_yarn_parameters. Dimensions that rotate more than BetaFast times
// over the trained length keep their frequency. Those that rotate less than BetaSlow times have it
// divided by Factor. A linear ramp over the dimensions interpolates between the two.
func (r Rope) yarn(dim int) []float32 {
	s := r.Scaling
	at := func(turns float64) float64 { // the dimension with that many rotations
		return float64(dim) * math.Log(float64(s.OriginalMaxPositionEmbeddings)/(turns*2*math.Pi)) / (2 * math.Log(r.Theta))
	}
	low, high := at(s.BetaFast), at(s.BetaSlow)
	if s.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = math.Max(low, 0), math.Min(high, float64(dim-1))
	if low == high {
		high += 0.001
	}
	out := make([]float32, dim/2)
	for i := range out {
		inv := math.Pow(r.Theta, -2*float64(i)/float64(dim))
		slow := min(max((float64(i)-low)/(high-low), 0), 1)
		out[i] = float32(inv/s.Factor*slow + inv*(1-slow))
	}
	return out
}
