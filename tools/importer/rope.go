package importer

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// cueOf returns a value of JSON as CUE.
func cueOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	return string(b)
}

// configOverrides converts --hf-overrides: fields of config.json. With classifier_from_token they are
// vLLM's way to make a classifier of a generating model.
func configOverrides(d *draft, s setting) {
	if !d.wantObject(s) {
		return
	}
	_, scores := s.keys["classifier_from_token"]
	for _, key := range sortedKeys(s.keys) {
		one := s.entry(key, compact(s.keys[key]))
		switch {
		case key == "classifier_from_token":
			d.set("pooling.classifierFromToken", cueOf(s.keys[key]), one)
			continue
		case scores && (key == "architectures" || key == "is_original_qwen3_reranker" || key == "method"):
			d.notef(one, "pooling.classifierFromToken makes the classifier")
			continue
		}
		if !jinjaName.MatchString(key) {
			d.invalid(one, "a field of config.json: letters, digits and _, the first no digit")
			continue
		}
		d.set("model.overrides."+key, cueOf(s.keys[key]), one)
	}
}

// ropeFields maps keys of a rope_scaling to fields of model.rope.
var ropeFields = map[string]string{
	"rope_type": "type", "type": "type", "rope_theta": "theta", "factor": "factor", "original_max_position_embeddings": "original",
	"attention_factor": "attentionFactor", "beta_fast": "betaFast", "beta_slow": "betaSlow", "low_freq_factor": "lowFreqFactor",
	"high_freq_factor": "highFreqFactor", "alpha": "alpha", "short_factor": "shortFactors", "long_factor": "longFactors",
}

// ropeScaling converts --rope-scaling. A scaling with a key that model.rope lacks becomes an
// override of the config's rope_scaling.
func ropeScaling(d *draft, s setting) {
	if !d.wantObject(s) {
		return
	}
	for _, key := range sortedKeys(s.keys) {
		if ropeFields[key] == "" {
			d.set("model.overrides.rope_scaling", cueOf(s.keys), s)
			return
		}
	}
	for _, key := range sortedKeys(s.keys) {
		one := s.entry(key, compact(s.keys[key]))
		d.set("model.rope."+ropeFields[key], cueOf(s.keys[key]), one)
	}
}

// ropePart converts a flag with one number of a rope. llama.cpp's 0 is the model's own.
func ropePart(field string) converter {
	return func(d *draft, s setting) {
		n, ok := decimal(s.value())
		switch {
		case !ok:
			d.invalid(s, "a number")
		case n != "0":
			d.set("model.rope."+field, n, s)
		}
	}
}

// llamaRope converts llama.cpp's --rope-scaling.
func llamaRope(d *draft, s setting) {
	switch v := strings.ToLower(s.value()); v {
	case "none":
		d.set("model.rope.type", `"default"`, s)
	case "linear", "yarn":
		d.set("model.rope.type", quote(v), s)
	default:
		d.invalid(s, "none, linear or yarn")
	}
}

// frequencyScale converts llama.cpp's --rope-freq-scale, the reciprocal of a factor.
func frequencyScale(d *draft, s setting) {
	x, err := strconv.ParseFloat(s.value(), 64)
	switch {
	case err != nil || !(x >= 0 && x <= 1):
		d.invalid(s, "a number above 0, at most 1")
	case x > 0:
		d.set("model.rope.factor", strconv.FormatFloat(1/x, 'g', 8, 64), s)
	}
}

// settleRope completes a rope. llama.cpp's factor without a type is linear; its factor may also stand
// in the file, so that a type alone has no counterpart.
func (d *draft) settleRope() {
	kind, typed := d.fields["model.rope.type"]
	factor, scaled := d.fields["model.rope.factor"]
	word := strings.Trim(kind.cue, `"`)
	switch {
	case scaled && !typed && d.lex.program.Name != "vLLM":
		d.set("model.rope.type", `"linear"`, factor.by)
	case typed && !scaled && d.lex.program.Name != "vLLM" && slices.Contains([]string{"linear", "yarn"}, word):
		delete(d.fields, "model.rope.type")
		d.notef(kind.by, no+"the file has the factor of its rope; give --rope-scale to replace it")
	}
	if _, ok := d.fields["model.rope.type"]; ok {
		return
	}
	for _, field := range []string{"original", "attentionFactor", "betaFast", "betaSlow"} {
		if f, ok := d.fields["model.rope."+field]; ok && d.lex.program.Name != "vLLM" {
			delete(d.fields, "model.rope."+field)
			d.notef(f.by, no+"the file has the other numbers of its rope; give --rope-scaling and --rope-scale to replace it")
		}
	}
}
