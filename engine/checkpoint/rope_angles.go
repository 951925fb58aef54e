package checkpoint

import "math"

// RopeAngles defines a rotary embedding: dimensions i and i+len(InvFreq) of a head rotate together
// by position · InvFreq[i] radians, and cos and sin are multiplied by Scale.
type RopeAngles struct {
	InvFreq []float32
	Scale   float32
}

// Rope returns the rotary embedding of a layer type at the planned length. If all layers share one, kind is ignored. A
// type that RopeByLayerType lacks is an error.
func (c Config) Rope(kind string) (Rope, error) {
	length := c.PlannedLength
	if length == 0 {
		length = c.MaxPositionEmbeddings
	}
	if c.RopeByLayerType == nil {
		return Rope{Theta: c.RopeTheta, PartialRotaryFactor: c.PartialRotaryFactor, Scaling: c.RopeScaling, Length: length}, nil
	}
	r, ok := c.RopeByLayerType[kind]
	if !ok {
		return Rope{}, fault("config", "rope_parameters."+kind, "is missing")
	}
	r.Length = length
	return r, nil
}

// Angles returns the frequencies for heads of size headDim. Rope types are those of transformers'
// ROPE_INIT_FUNCTIONS: default, linear, llama3, dynamic, longrope, "yarn" (Peng et al. 2023, arXiv
// 2309.00071) and "proportional". All but the last rotate the first PartialRotaryFactor of the
// dimensions, and InvFreq is shorter by that factor. "proportional" pairs the dimensions of the
// whole head, rotates the first PartialRotaryFactor of the pairs and gives the others frequency 0.
//
// transformers computes dynamic and longrope anew for the length of each batch. Keys in the KV
// cache would then have been rotated by other angles than queries, and a reply would depend on the
// other sequences of its batch. So Angles takes the planned maximum length for every sequence; vLLM
// selects the factors of longrope by its max_model_len in the same way.
func (r Rope) Angles(headDim int) (RopeAngles, error) {
	dim := int(float64(headDim) * r.PartialRotaryFactor)
	kind := r.Scaling.Type
	if kind == "proportional" {
		dim = headDim
	}
	if dim < 2 || dim%2 != 0 {
		return RopeAngles{}, fault("config", "partial_rotary_factor", "is %v, which leaves %d of a head's %d dimensions; an even number must rotate", r.PartialRotaryFactor, dim, headDim)
	}
	switch {
	case kind == "yarn" && r.Theta <= 1:
		return RopeAngles{}, fault("config", "rope_theta", "is %v; yarn needs more than 1", r.Theta)
	case kind == "yarn":
		return RopeAngles{r.yarn(dim), float32(r.Scaling.attentionFactor())}, nil
	case kind == "proportional":
		return RopeAngles{r.proportional(headDim), 1}, nil
	case kind == "dynamic" && dim < 4:
		return RopeAngles{}, fault("config", "rope_scaling.rope_type", "is dynamic, which needs at least 4 rotated dimensions; heads have %d", dim)
	}
	inv, err := r.frequencies(dim)
	scale := 1.0
	if kind == "longrope" {
		scale = r.longScale()
	}
	return RopeAngles{inv, float32(scale)}, err
}

// isLong reports whether the planned length is above the trained one.
func (r Rope) isLong() bool { return r.Length > r.Scaling.OriginalMaxPositionEmbeddings }

// dynamicTheta is the base of transformers' _compute_dynamic_ntk_parameters for sequences of the
// planned length L: θ · (factor · L / trained − (factor − 1))^(d/(d−2)), and θ up to the trained
// length. With Alpha it is θ · alpha^(d/(d−2)), as in vLLM's DynamicNTKAlphaRotaryEmbedding.
func (r Rope) dynamicTheta(dim int) float64 {
	s := r.Scaling
	grow := s.Alpha
	if grow == 0 {
		trained := float64(s.OriginalMaxPositionEmbeddings)
		grow = s.Factor*max(float64(r.Length), trained)/trained - (s.Factor - 1)
	}
	return r.Theta * math.Pow(grow, float64(dim)/float64(dim-2))
}

// longScale returns the factor on cos and sin of a longrope: √(1 + ln(Factor) / ln(trained)) unless
// the config sets it, where Factor is max_position_embeddings / trained (transformers'
// _compute_longrope_parameters; vLLM's short_mscale and long_mscale).
func (r Rope) longScale() float64 {
	s := r.Scaling
	switch {
	case r.isLong() && s.LongMScale != 0:
		return s.LongMScale
	case !r.isLong() && s.ShortMScale != 0:
		return s.ShortMScale
	case s.AttentionFactor != 0:
		return s.AttentionFactor
	case s.Factor <= 1:
		return 1
	}
	return math.Sqrt(1 + math.Log(s.Factor)/math.Log(float64(s.OriginalMaxPositionEmbeddings)))
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

// ScoreScale returns the factor on attention scores of DeepSeek's yarn: the square of
// 0.1 · MScaleAllDim · ln(Factor) + 1.
func (s RopeScaling) ScoreScale() float64 {
	if s.MScaleAllDim == 0 || s.Factor <= 1 {
		return 1
	}
	m := 0.1*s.MScaleAllDim*math.Log(s.Factor) + 1
	return m * m
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
