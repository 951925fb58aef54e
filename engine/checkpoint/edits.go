package checkpoint

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"vapp.dev/nearest"
)

// Edits change a config before it is read. The zero value changes nothing.
type Edits struct {
	// Overrides is a JSON object whose fields replace those of config.json. As in vLLM's
	// --hf-overrides, an object under a key that ends in _config is merged, any other value replaces
	// the whole field, and a field that config.json lacks is added. null removes a field.
	Overrides json.RawMessage
	// Rope is a rope_parameters object that replaces the rotary embedding of all layers. Without
	// rope_type it replaces rope_theta alone. original_max_position_embeddings defaults to the config's
	// max_position_embeddings.
	Rope json.RawMessage
}

// Edit is a field of a config that Edits replaced. Old and New are JSON, "" if the field is absent.
type Edit struct {
	Field, Old, New string
	// Near is the field of the config that Field is probably a misspelling of, if the config lacks
	// Field; "": none.
	Near string
}

// Parse is ParseConfig for a config with the edits.
func (e Edits) Parse(name string, data []byte) (Config, error) {
	data, list, err := e.merge(name, data)
	if err != nil {
		return Config{}, err
	}
	c, err := ParseConfig(name, data)
	if err != nil {
		return Config{}, err
	}
	c.Edited = list
	scaled := slices.ContainsFunc(list, func(d Edit) bool {
		return strings.HasSuffix(d.Field, "rope_scaling") || strings.HasSuffix(d.Field, "rope_parameters")
	})
	if scaled {
		c.stretch()
	}
	return c, c.replaceRope(e.Rope)
}

// stretch multiplies the longest sequence by the factor of a linear rope that a profile sets. The
// linear rope of a published config is in its max_position_embeddings already.
func (c *Config) stretch() {
	if c.RopeByLayerType == nil && c.RopeScaling.Type == "linear" {
		c.MaxPositionEmbeddings = int(max(1, min(c.RopeScaling.Factor*float64(c.trained), maxPositions)))
	}
}

// merge returns data with the overrides, and what they replaced.
func (e Edits) merge(name string, data []byte) ([]byte, []Edit, error) {
	if len(e.Overrides) == 0 {
		return data, nil, nil
	}
	base, err := newFields(name, "", data)
	if err != nil {
		return nil, nil, err
	}
	over, err := newFields("model.overrides", "", e.Overrides)
	if err != nil {
		return nil, nil, err
	}
	var list []Edit
	merged := mergeInto(base.m, over.m, "", &list)
	out, err := json.Marshal(merged)
	if err != nil {
		return nil, nil, fault("model.overrides", "", "cannot be merged: %v", err)
	}
	return out, list, nil
}

// mergeInto returns a copy of base with the fields of over, and adds what it replaced to list.
func mergeInto(base, over map[string]json.RawMessage, prefix string, list *[]Edit) map[string]json.RawMessage {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]json.RawMessage{}
	}
	for _, key := range slices.Sorted(maps.Keys(over)) {
		old, has := base[key]
		var inner, with map[string]json.RawMessage
		if strings.HasSuffix(key, "_config") && json.Unmarshal(over[key], &with) == nil && with != nil && json.Unmarshal(old, &inner) == nil && inner != nil {
			next, err := json.Marshal(mergeInto(inner, with, prefix+key+".", list))
			if err == nil {
				out[key] = next
			}
			continue
		}
		d := Edit{Field: prefix + key, Old: compactJSON(old), New: compactJSON(over[key])}
		out[key] = over[key]
		if d.New == "null" {
			d.New = ""
			delete(out, key)
		}
		if !has {
			d.Near = near(key, base)
		}
		*list = append(*list, d)
	}
	return out
}

// near returns the field that was probably meant by one that base lacks: that of text_config, which
// takes precedence over the outer one, or a similar name.
func near(key string, base map[string]json.RawMessage) string {
	var inner map[string]json.RawMessage
	if v, ok := base["text_config"]; ok && json.Unmarshal(v, &inner) == nil {
		if _, ok := inner[key]; ok {
			return "text_config." + key
		}
	}
	return nearest.Best(key, slices.Sorted(maps.Keys(base)))
}

// compactJSON returns a value on one line, "" for none.
func compactJSON(v json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return string(v)
	}
	return b.String()
}

// replaceRope replaces the rotary embedding of all layers by a rope_parameters object.
func (c *Config) replaceRope(raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	if c.RopeByLayerType != nil {
		return fault("model.rope", "", "the ropes of %s differ by layer type (%s); replace rope_parameters as a whole with model.overrides",
			c.Architecture, strings.Join(slices.Sorted(maps.Keys(c.RopeByLayerType)), ", "))
	}
	f, err := newFields("model.rope", "", raw)
	if err != nil {
		return err
	}
	old := *c
	c.MaxPositionEmbeddings = c.trained
	if _, has := f.m["original_max_position_embeddings"]; !has {
		f.m["original_max_position_embeddings"], _ = json.Marshal(c.trained)
	}
	c.RopeTheta = f.realOr("rope_theta", 1, 1e15, c.RopeTheta)
	if f.has("rope_type") {
		whole := &fields{file: f.file}
		c.RopeScaling = (&part{f, whole}).scaling(c, whole)
		f.err = whole.err
		c.extendLength()
		c.stretch()
	} else {
		c.MaxPositionEmbeddings = old.MaxPositionEmbeddings
	}
	if f.err != nil {
		return f.err
	}
	if c.RopeTheta != old.RopeTheta {
		c.edited("rope_theta", old.RopeTheta, c.RopeTheta)
	}
	if f.has("rope_type") {
		c.edited("rope_scaling", old.RopeScaling.words(), c.RopeScaling.words())
	}
	if c.MaxPositionEmbeddings != old.MaxPositionEmbeddings {
		c.edited("max_position_embeddings", old.MaxPositionEmbeddings, c.MaxPositionEmbeddings)
	}
	return nil
}

// edited adds a field to Edited.
func (c *Config) edited(field string, old, now any) {
	a, _ := json.Marshal(old)
	b, _ := json.Marshal(now)
	c.Edited = append(slices.Clone(c.Edited), Edit{Field: field, Old: string(a), New: string(b)})
}

// words returns the numbers of a scaling that are set, by their names in config.json.
func (s RopeScaling) words() map[string]any {
	out := map[string]any{"rope_type": "default"}
	if s.Type != "" {
		out["rope_type"] = s.Type
	}
	for key, v := range map[string]float64{
		"factor": s.Factor, "low_freq_factor": s.LowFreqFactor, "high_freq_factor": s.HighFreqFactor, "alpha": s.Alpha,
		"original_max_position_embeddings": float64(s.OriginalMaxPositionEmbeddings), "attention_factor": s.AttentionFactor,
		"mscale": s.MScale, "mscale_all_dim": s.MScaleAllDim,
	} {
		if v != 0 {
			out[key] = v
		}
	}
	return out
}
