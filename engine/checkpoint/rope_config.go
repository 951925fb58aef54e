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
			c.RopeScaling = f.object("rope_scaling.", v).scaling()
		}
		return
	}
	p := f.object("rope_parameters.", v)
	if f.err != nil {
		return
	}
	if !p.nested() {
		r := p.rope(f, c.PartialRotaryFactor)
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
		c.RopeByLayerType[kind] = layer.rope(f, c.PartialRotaryFactor)
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

func (p *part) rope(f *fields, partial float64) Rope {
	r := Rope{
		Theta:               p.realOr("rope_theta", 1, 1e15, f.realOr("rope_theta", 1, 1e15, DefaultRopeTheta)),
		PartialRotaryFactor: p.realOr("partial_rotary_factor", 1e-3, 1, partial),
	}
	r.Scaling = p.scaling()
	return r
}

// scaling reads the keys of a rope_scaling or rope_parameters object.
func (p *part) scaling() RopeScaling {
	s := RopeScaling{Type: p.text("rope_type", p.text("type", ""))}
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
		if p.err == nil && s.HighFreqFactor <= s.LowFreqFactor {
			p.fail("high_freq_factor", "is %v, not above low_freq_factor %v", s.HighFreqFactor, s.LowFreqFactor)
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
