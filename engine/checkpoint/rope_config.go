package checkpoint

import (
	"encoding/json"
	"maps"
	"slices"
)

// readRope reads both dialects: rope_theta and rope_scaling (up to transformers 4), and
// rope_parameters, which contains both (transformers 5).
func (c *Config) readRope(f *fields) {
	if f.err != nil {
		return
	}
	c.PartialRotaryFactor = f.realOr("partial_rotary_factor", 1e-3, 1, 1)
	v, ok := f.raw("rope_parameters")
	if !ok {
		c.RopeTheta = f.realOr("rope_theta", 1, 1e15, DefaultRopeTheta)
		if v, ok := f.raw("rope_scaling"); ok {
			c.RopeScaling = f.object("rope_scaling.", v).scaling(c, f)
		}
		return
	}
	p := f.object("rope_parameters.", v)
	if f.err != nil {
		return
	}
	if !p.nested() {
		r := p.rope(c, f)
		c.RopeTheta, c.RopeScaling, c.PartialRotaryFactor = r.Theta, r.Scaling, r.PartialRotaryFactor
		return
	}
	c.RopeByLayerType = map[string]Rope{}
	for _, kind := range slices.Sorted(maps.Keys(p.m)) {
		v, ok := p.raw(kind)
		if !ok {
			continue
		}
		layer := f.object("rope_parameters."+kind+".", v)
		if f.err != nil {
			return
		}
		c.RopeByLayerType[kind] = layer.rope(c, f)
	}
}

// nested reports whether every value is an object, that is one rope per layer type.
func (f *fields) nested() bool {
	for _, v := range f.m {
		if v[0] != '{' && string(v) != "null" {
			return false
		}
	}
	return len(f.m) > 0
}

// object decodes a part of f; an error in it becomes f's error.
func (f *fields) object(prefix string, v json.RawMessage) *part {
	inner, err := newFields(f.file, f.prefix+prefix, v)
	if err != nil {
		if f.err == nil {
			f.err = err
		}
		inner = &fields{file: f.file, prefix: f.prefix + prefix}
	}
	return &part{inner, f}
}

// part is an object inside another one.
type part struct {
	*fields
	whole *fields
}

func (p *part) rope(c *Config, f *fields) Rope {
	r := Rope{
		Theta:               p.realOr("rope_theta", 1, 1e15, f.realOr("rope_theta", 1, 1e15, DefaultRopeTheta)),
		PartialRotaryFactor: p.realOr("partial_rotary_factor", 1e-3, 1, c.PartialRotaryFactor),
	}
	r.Scaling = p.scaling(c, f)
	return r
}

// scaling reads the keys of a rope_scaling or rope_parameters object; f is the config around it.
func (p *part) scaling(c *Config, f *fields) RopeScaling {
	s := RopeScaling{Type: p.text("rope_type", p.text("type", ""))}
	if s.Type == "su" { // the name of longrope in the first configs of Phi-3
		s.Type = "longrope"
	}
	if s.QueryBeta = p.realOr("llama_4_scaling_beta", 0, maxFactor, 0); s.QueryBeta != 0 {
		s.OriginalMaxPositionEmbeddings = p.count("original_max_position_embeddings", 1, maxPositions)
		if s.Type != "yarn" {
			p.fail("llama_4_scaling_beta", "is %v with the rope type %s; with yarn, queries are scaled by their position", s.QueryBeta, clip(s.Type))
		}
	}
	switch {
	case p.whole.err != nil:
	case s.Type == "" && p.prefix == p.whole.prefix+"rope_scaling.":
		p.fail("rope_type", "is missing")
	case s.Type == "default" || s.Type == "":
		s.Type = ""
	case s.Type == "llama3":
		s.Factor = p.real("factor", 1, maxFactor)
		s.LowFreqFactor = p.real("low_freq_factor", minFactor, maxFactor)
		s.HighFreqFactor = p.real("high_freq_factor", minFactor, maxFactor)
		s.OriginalMaxPositionEmbeddings = p.count("original_max_position_embeddings", 1, maxPositions)
		if p.err == nil && s.HighFreqFactor < s.LowFreqFactor {
			p.fail("high_freq_factor", "is %v, below low_freq_factor %v", s.HighFreqFactor, s.LowFreqFactor)
		}
	case s.Type == "yarn":
		s.Factor = p.real("factor", 1, maxFactor)
		s.OriginalMaxPositionEmbeddings = p.count("original_max_position_embeddings", 1, maxPositions)
		s.BetaFast = p.realOr("beta_fast", minFactor, maxFactor, 32)
		s.BetaSlow = p.realOr("beta_slow", minFactor, maxFactor, 1)
		s.AttentionFactor = p.realOr("attention_factor", minFactor, maxFactor, 0)
		s.MScale = p.realOr("mscale", 0, maxFactor, 0)
		s.MScaleAllDim = p.realOr("mscale_all_dim", 0, maxFactor, 0)
		s.Truncate = p.flag("truncate", true)
	case s.Type == "dynamic":
		s.OriginalMaxPositionEmbeddings = p.countOr("max_trained_positions", 1, maxPositions, int64(c.MaxPositionEmbeddings))
		if s.Alpha = p.realOr("alpha", 1, maxFactor, 0); s.Alpha != 0 {
			s.Factor = p.realOr("factor", 1, maxFactor, 1)
		} else {
			s.Factor = p.real("factor", 1, maxFactor)
		}
	case s.Type == "longrope":
		s.readLong(p, c, f)
	default:
		s.Factor = p.realOr("factor", minFactor, maxFactor, 0)
		s.OriginalMaxPositionEmbeddings = p.countOr("original_max_position_embeddings", 1, maxPositions, 0)
		if s.Type == "linear" && s.Factor == 0 {
			p.fail("factor", "is missing")
		}
	}
	if p.whole.err == nil {
		p.whole.err = p.err
	}
	return s
}

// readLong reads a longrope. Phi's configs have original_max_position_embeddings outside it; that
// value takes precedence, as in transformers.
func (s *RopeScaling) readLong(p *part, c *Config, f *fields) {
	inside := p.countOr("original_max_position_embeddings", 2, maxPositions, int64(max(2, c.MaxPositionEmbeddings)))
	s.OriginalMaxPositionEmbeddings = f.countOr("original_max_position_embeddings", 2, maxPositions, int64(inside))
	s.ShortFactors, s.LongFactors = p.factors("short_factor"), p.factors("long_factor")
	s.AttentionFactor = p.realOr("attention_factor", minFactor, maxFactor, 0)
	s.ShortMScale = p.realOr("short_mscale", minFactor, maxFactor, 0)
	s.LongMScale = p.realOr("long_mscale", minFactor, maxFactor, 0)
	if p.err == nil && f.err == nil {
		s.Factor = p.realOr("factor", minFactor, maxFactor, float64(c.MaxPositionEmbeddings)/float64(s.OriginalMaxPositionEmbeddings))
	}
}

// factors reads a required list of numbers, one for each pair of rotated dimensions.
func (p *part) factors(key string) []float32 {
	v, ok := p.raw(key)
	if !ok {
		p.fail(key, "is missing")
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(v, &list) != nil || len(list) == 0 || len(list) > maxHeadDim/2 {
		p.fail(key, "is not a list of 1 to %d numbers", maxHeadDim/2)
		return nil
	}
	out := make([]float32, len(list))
	for i, e := range list {
		x, ok := number(e)
		if !ok || x < minFactor || x > maxFactor {
			p.fail(key, "factor %d is %s, allowed are %v to %v", i, clip(string(e)), minFactor, maxFactor)
			return nil
		}
		out[i] = float32(x)
	}
	return out
}

// extendLength sets the longest sequence that the ropes allow. A config's yarn is usually in its
// max_position_embeddings already (gpt-oss, DeepSeek); where it is not, as in Qwen's instructions
// for long texts, the length is factor × original, as in vLLM. A dynamic rope extends
// max_position_embeddings by its factor. The other types extend nothing: the configs of Gemma 3,
// Llama 3 and Phi contain the extended length.
func (c *Config) extendLength() {
	c.trained = c.MaxPositionEmbeddings
	list := []RopeScaling{c.RopeScaling}
	for _, r := range c.RopeByLayerType {
		list = append(list, r.Scaling)
	}
	longest := float64(c.MaxPositionEmbeddings)
	for _, s := range list {
		if s.Type == "yarn" || s.Type == "dynamic" {
			longest = max(longest, s.Factor*float64(s.OriginalMaxPositionEmbeddings))
		}
	}
	c.MaxPositionEmbeddings = int(min(longest, maxPositions))
}
