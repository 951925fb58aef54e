package checkpoint

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
)

// TestAnglesRecorded compares frequencies and scales with those that transformers 5.23.0 computes
// from the same parameters. testdata/rope was written from the inv_freq buffers of
// GptOssRotaryEmbedding, Gemma4TextRotaryEmbedding and Gemma4VisionRotaryEmbedding. They are
// computed in float32 with two or three roundings, hence the bound of four units in the last place.
func TestAnglesRecorded(t *testing.T) {
	data, err := os.ReadFile("testdata/rope/transformers-5.23.0.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]struct {
		Scale   float64   `json:"scale"`
		InvFreq []float32 `json:"inv_freq"`
	}
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	config := func(name, kind string) Rope {
		c, err := ParseConfig(name, readConfig(t, name))
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Rope(kind)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	oss := config("gpt-oss-20b", "")
	truncated := oss
	truncated.Theta = 10000
	truncated.Scaling.Truncate, truncated.Scaling.MScale, truncated.Scaling.MScaleAllDim = true, 1, 0.5
	for name, c := range map[string]struct {
		rope Rope
		dim  int
	}{
		"gpt-oss":           {oss, 64},
		"truncated":         {truncated, 64},
		"sliding_attention": {config("gemma-4-26b-a4b", "sliding_attention"), 256},
		"full_attention":    {config("gemma-4-26b-a4b", "full_attention"), 512},
		"vision":            {Rope{Theta: 100, PartialRotaryFactor: 1}, 36},
	} {
		got, err := c.rope.Angles(c.dim)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		w := want[name]
		if len(got.InvFreq) != len(w.InvFreq) || len(w.InvFreq) == 0 || math.Abs(float64(got.Scale)-w.Scale) > 1e-7*w.Scale {
			t.Errorf("%s: %d frequencies, scale %v; want %d, %v", name, len(got.InvFreq), got.Scale, len(w.InvFreq), w.Scale)
			continue
		}
		for i, v := range got.InvFreq {
			if d := math.Abs(float64(v) - float64(w.InvFreq[i])); d > 4*1.2e-7*float64(w.InvFreq[i]) {
				t.Errorf("%s: frequency %d is %v, recorded %v", name, i, v, w.InvFreq[i])
			}
		}
	}
	if full := config("gemma-4-26b-a4b", "full_attention"); full.RotaryDim(512) != 128 {
		t.Errorf("%d of 512 dimensions turn, not 128", full.RotaryDim(512))
	}
}

// TestAnglesInitFunctions compares every rope type with transformers' ROPE_INIT_FUNCTIONS, from the keys
// of a config.json to the frequencies and the scale. testdata/rope/record.py recorded them. They are
// computed in float32; the powers of a large base have several roundings, hence the bound.
func TestAnglesInitFunctions(t *testing.T) {
	data, err := os.ReadFile("testdata/rope/init-functions-5.23.0.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string]struct {
		Config  map[string]any `json:"config"`
		Length  int            `json:"length"`
		Scale   float64        `json:"scale"`
		InvFreq []float32      `json:"inv_freq"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != 15 {
		t.Errorf("%d cases, recorded are 15", len(cases))
	}
	for name, want := range cases {
		c, err := parseSmall(t, want.Config)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c.PlannedLength = want.Length
		r, err := c.Rope("")
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Angles(c.HeadDim)
		if err != nil || len(got.InvFreq) != len(want.InvFreq) || math.Abs(float64(got.Scale)-want.Scale) > 1e-7*want.Scale {
			t.Errorf("%s: %d frequencies, scale %v, %v; want %d, %v", name, len(got.InvFreq), got.Scale, err, len(want.InvFreq), want.Scale)
			continue
		}
		for i, v := range got.InvFreq {
			if d := math.Abs(float64(v) - float64(want.InvFreq[i])); d > 1e-6*float64(want.InvFreq[i]) {
				t.Errorf("%s: frequency %d is %v, recorded %v", name, i, v, want.InvFreq[i])
			}
		}
		if depends := strings.HasPrefix(name, "dynamic") || strings.HasPrefix(name, "longrope"); c.DependsOnLength() != depends {
			t.Errorf("%s: DependsOnLength is %v", name, !depends)
		}
	}
}

// TestRopeLength checks the longest sequence under each rope type, and what vLLM reads and
// transformers does not: alpha, max_trained_positions, the two mscales, the name su.
func TestRopeLength(t *testing.T) {
	factors := []float64{1, 2, 3, 4, 5, 6, 7, 8}
	for name, c := range map[string]struct {
		rope    map[string]any
		longest int
		scale   float32
		second  float64 // the frequency of the second pair
	}{
		"yarn":     {map[string]any{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 512}, 2048, float32(0.1*math.Log(4) + 1), 0},
		"extended": {map[string]any{"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 256}, 512, float32(0.1*math.Log(2) + 1), 0},
		"linear":   {map[string]any{"type": "linear", "factor": 4}, 512, 1, math.Pow(1e4, -0.125) / 4},
		"dynamic":  {map[string]any{"type": "dynamic", "factor": 4}, 2048, 1, math.Pow(1e4*math.Pow(13, 16.0/14), -0.125)},
		"trained":  {map[string]any{"type": "dynamic", "factor": 3, "max_trained_positions": 256}, 768, 1, math.Pow(1e4*math.Pow(7, 16.0/14), -0.125)},
		"alpha":    {map[string]any{"type": "dynamic", "alpha": 1000, "factor": 1}, 512, 1, math.Pow(1e4*math.Pow(1000, 16.0/14), -0.125)},
		"su":       {map[string]any{"type": "su", "short_factor": factors, "long_factor": factors, "original_max_position_embeddings": 64, "short_mscale": 3, "long_mscale": 1.25}, 512, 1.25, math.Pow(1e4, -0.125) / 2},
	} {
		got, err := parseSmall(t, map[string]any{"rope_scaling": c.rope})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r, _ := got.Rope("")
		a, err := r.Angles(got.HeadDim)
		if err != nil || got.MaxPositionEmbeddings != c.longest || a.Scale != c.scale {
			t.Errorf("%s: %d tokens, scale %v, %v; want %d and %v", name, got.MaxPositionEmbeddings, a.Scale, err, c.longest, c.scale)
			continue
		}
		if c.second != 0 && math.Abs(float64(a.InvFreq[1])/c.second-1) > 1e-6 {
			t.Errorf("%s: frequency 1 is %v, want %v", name, a.InvFreq[1], c.second)
		}
	}
	c, err := parseSmall(t, map[string]any{"rope_scaling": map[string]any{"type": "longrope", "short_factor": factors, "long_factor": factors[:7], "original_max_position_embeddings": 64}})
	if err != nil {
		t.Fatal(err)
	}
	r, _ := c.Rope("")
	if _, err := r.Angles(16); err == nil || !strings.Contains(err.Error(), "7 factors") {
		t.Errorf("seven factors of eight: %v", err)
	}
}

func TestAnglesRefused(t *testing.T) {
	for what, r := range map[string]Rope{
		"partial":  {Theta: 1e4, PartialRotaryFactor: 0.01},
		"odd":      {Theta: 1e4, PartialRotaryFactor: 0.3125},
		"theta":    {Theta: 1, PartialRotaryFactor: 1, Scaling: RopeScaling{Type: "yarn", Factor: 2, OriginalMaxPositionEmbeddings: 9, BetaFast: 32, BetaSlow: 1}},
		"longrope": {Theta: 1e4, PartialRotaryFactor: 1, Scaling: RopeScaling{Type: "longrope", Factor: 2}},
		"dynamic":  {Theta: 1e4, PartialRotaryFactor: 0.125, Scaling: RopeScaling{Type: "dynamic", Factor: 2, OriginalMaxPositionEmbeddings: 9}},
		"unknown":  {Theta: 1e4, PartialRotaryFactor: 1, Scaling: RopeScaling{Type: "fractal", Factor: 2}},
	} {
		if _, err := r.Angles(16); err == nil || !strings.Contains(err.Error(), "rop") && !strings.Contains(err.Error(), "rot") {
			t.Errorf("%s: %v", what, err)
		}
	}
	c := Config{RopeByLayerType: map[string]Rope{}}
	if _, err := c.Rope("full_attention"); err == nil || !strings.Contains(err.Error(), "rope_parameters.full_attention") {
		t.Error(err)
	}
}

func TestSection(t *testing.T) {
	c, err := ParseConfig("c", readConfig(t, "gemma-4-26b-a4b"))
	if err != nil {
		t.Fatal(err)
	}
	if c.NumExperts != 128 || c.ExpertsPerToken != 8 || c.MoEIntermediateSize != 704 || c.FinalLogitSoftcap != 30 {
		t.Errorf("%d experts, %d a token, of %d; softcap %v", c.NumExperts, c.ExpertsPerToken, c.MoEIntermediateSize, c.FinalLogitSoftcap)
	}
	s, err := c.Section("")
	if err != nil || s.Count("global_head_dim", 1, 1024) != 512 || !s.FlagOr("attention_k_eq_v", false) || s.Has("audio_config") || s.Err() != nil {
		t.Errorf("text: %v %v", err, s.Err())
	}
	v, err := c.Section("vision_config")
	if err != nil || v.Count("patch_size", 1, 99) != 16 || v.RealOr("rms_norm_eps", 0, 1, 0) != 1e-6 || v.TextOr("hidden_activation", "") != "gelu_pytorch_tanh" ||
		v.Section("rope_parameters").RealOr("rope_theta", 1, 1e9, 0) != 100 || v.Section("none") != nil {
		t.Errorf("vision: %v", err)
	}
	if v.CountOr("hidden_size", 1, 10, 3); v.Err() == nil || !strings.Contains(v.Err().Error(), "vision_config.hidden_size") {
		t.Errorf("out of bounds: %v", v.Err())
	}
	if a, err := c.Section("audio_config"); a != nil || err != nil {
		t.Errorf("a null section: %v %v", a, err)
	}
	flat, err := ParseConfig("c", readConfig(t, "gpt-oss-20b"))
	if err != nil || flat.NumExperts != 32 || flat.ExpertsPerToken != 4 {
		t.Errorf("gpt-oss: %d experts, %d a token, %v", flat.NumExperts, flat.ExpertsPerToken, err)
	}
	if s, err := flat.Section(""); err != nil || s.RealOr("swiglu_limit", 0, 99, 0) != 7 {
		t.Error(err)
	}
}
