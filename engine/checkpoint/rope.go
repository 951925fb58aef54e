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
	Type                          string // "llama3", "linear", …; "" for none ("default")
	Factor                        float64
	LowFreqFactor                 float64 // llama3
	HighFreqFactor                float64 // llama3
	OriginalMaxPositionEmbeddings int     // llama3, yarn
	// yarn: the numbers of rotations over the trained length at the ends of the ramp, whether the
	// ends are rounded to whole dimensions, and the factor on cos and sin (0: from Factor, or from
	// MScale and MScaleAllDim if both are set).
	BetaFast, BetaSlow   float64
	Truncate             bool
	AttentionFactor      float64
	MScale, MScaleAllDim float64
	// Factors divides each of the HeadDim/2 frequencies. A GGUF file stores llama3 scaling as this
	// list (rope_freqs.weight); the four numbers above are then 0.
	Factors []float32
}

// Rope is the rotary embedding of one layer type.
type Rope struct {
	Theta               float64
	PartialRotaryFactor float64
	Scaling             RopeScaling
}

// RopeInvFreq returns the HeadDim/2 angular frequencies of the rotary embedding, in radians per
// position: θ^(−2i/d), each divided according to the scaling. llama3 follows transformers'
// _compute_llama3_parameters: wavelengths below original/high keep their frequency, those above
// original/low are divided by factor, and those between are interpolated. It refuses other scaling
// types, and ropes that differ by layer or rotate part of a head.
func (c Config) RopeInvFreq() ([]float32, error) {
	if c.RopeByLayerType != nil || c.PartialRotaryFactor != 1 {
		return nil, fault("config", "rope_parameters", "partial or per-layer rotary embedding belongs to another family")
	}
	s := c.RopeScaling
	out := make([]float32, c.HeadDim/2)
	for i := range out {
		inv := math.Pow(c.RopeTheta, -2*float64(i)/float64(c.HeadDim))
		switch {
		case s.Factors != nil:
			inv /= float64(s.Factors[i])
		case s.Type == "":
		case s.Type == "linear":
			inv /= s.Factor
		case s.Type == "llama3":
			inv = s.llama3(inv)
		default:
			return nil, fault("config", "rope_scaling.rope_type", "%s is not supported here (llama3, linear and default are)", clip(s.Type))
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
