package checkpoint

import "math"

// DefaultRopeTheta is transformers' default.
const DefaultRopeTheta = 10000

// Bounds of rope scaling factors.
const (
	minFactor = 1e-6
	maxFactor = 1 << 20
)

// RopeScaling extends rotary positions beyond the trained length.
type RopeScaling struct {
	Type           string // "llama3", "linear", …; "" for none ("default")
	Factor         float64
	LowFreqFactor  float64 // llama3
	HighFreqFactor float64 // llama3
	// OriginalMaxPositionEmbeddings is the trained length (llama3, yarn, dynamic, longrope).
	OriginalMaxPositionEmbeddings int
	// yarn: the numbers of rotations over the trained length at the ends of the ramp, whether the
	// ends are rounded to whole dimensions, and the factor on cos and sin (0: from Factor, or from
	// MScale and MScaleAllDim if both are set). longrope has AttentionFactor, too.
	BetaFast, BetaSlow   float64
	Truncate             bool
	AttentionFactor      float64
	MScale, MScaleAllDim float64
	// QueryBeta scales queries by their position, every OriginalMaxPositionEmbeddings further
	// (llama_4_scaling_beta of yarn: Ministral 3); 0: not.
	QueryBeta float64
	// Alpha replaces Factor in a dynamic rope: the base is multiplied once, for every length.
	Alpha float64
	// longrope: ShortFactors and LongFactors divide each frequency, for sequences up to the trained
	// length and beyond it. ShortMScale and LongMScale multiply cos and sin; 0: the attention factor.
	ShortFactors, LongFactors []float32
	ShortMScale, LongMScale   float64
	// Factors divides each of the HeadDim/2 frequencies. A GGUF file stores llama3 scaling as this
	// list (rope_freqs.weight); the four numbers above are then 0.
	Factors []float32
}

// Rope is the rotary embedding of one layer type.
type Rope struct {
	Theta               float64
	PartialRotaryFactor float64
	Scaling             RopeScaling
	// Length is the planned maximum length of a sequence in tokens, by which dynamic and longrope
	// are computed; 0: the trained length.
	Length int
}

// DependsOnLength reports whether some layer's rotary embedding differs by the planned maximum
// length of a sequence: whether a rope of the types dynamic or longrope is in use.
func (c Config) DependsOnLength() bool {
	depends := func(s RopeScaling) bool { return s.Type == "dynamic" && s.Alpha == 0 || s.Type == "longrope" }
	for _, r := range c.RopeByLayerType {
		if depends(r.Scaling) {
			return true
		}
	}
	return c.RopeByLayerType == nil && depends(c.RopeScaling)
}

// RopeInvFreq returns the HeadDim/2 angular frequencies of the rotary embedding, in radians per
// position. It refuses scaling types that also scale cos and sin, and ropes that differ by layer or
// rotate part of a head; Rope.Angles has those.
func (c Config) RopeInvFreq() ([]float32, error) {
	if c.RopeByLayerType != nil || c.PartialRotaryFactor != 1 {
		return nil, fault("config", "rope_parameters", "partial or per-layer rotary embedding belongs to another family")
	}
	switch c.RopeScaling.Type {
	case "", "linear", "llama3":
	default:
		return nil, fault("config", "rope_scaling.rope_type", "%s also scales cos and sin or depends on the length", clip(c.RopeScaling.Type))
	}
	return Rope{Theta: c.RopeTheta, Scaling: c.RopeScaling}.frequencies(c.HeadDim)
}

// frequencies returns the dim/2 frequencies θ^(−2i/dim), each divided according to the scaling.
// llama3 follows transformers' _compute_llama3_parameters: wavelengths below original/high keep
// their frequency, those above original/low are divided by factor, and those between are
// interpolated.
func (r Rope) frequencies(dim int) ([]float32, error) {
	s := r.Scaling
	theta, divide := r.Theta, s.Factors
	switch s.Type {
	case "", "linear", "llama3":
	case "dynamic":
		theta = r.dynamicTheta(dim)
	case "longrope":
		divide = s.ShortFactors
		if r.isLong() {
			divide = s.LongFactors
		}
	default:
		return nil, fault("config", "rope_scaling.rope_type", "%s is not supported (default, linear, dynamic, yarn, longrope, llama3 and proportional are)", clip(s.Type))
	}
	if len(divide) != dim/2 && (divide != nil || s.Type == "longrope") {
		return nil, fault("config", "rope_scaling", "%s has %d factors for %d rotated dimensions, which need %d", s.Type, len(divide), dim, dim/2)
	}
	out := make([]float32, dim/2)
	for i := range out {
		inv := math.Pow(theta, -2*float64(i)/float64(dim))
		switch {
		case divide != nil:
			inv /= float64(divide[i])
		case s.Type == "linear":
			inv /= s.Factor
		case s.Type == "llama3":
			inv = s.llama3(inv)
		}
		out[i] = float32(inv)
	}
	return out, nil
}

func (s RopeScaling) llama3(inv float64) float64 {
	old := float64(s.OriginalMaxPositionEmbeddings)
	wave := 2 * math.Pi / inv
	switch {
	case wave < old/s.HighFreqFactor:
		return inv
	case wave > old/s.LowFreqFactor:
		return inv / s.Factor
	}
	smooth := (old/wave - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
	return (1-smooth)*inv/s.Factor + smooth*inv
}
