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

func TestAnglesRefused(t *testing.T) {
	for what, r := range map[string]Rope{
		"partial":  {Theta: 1e4, PartialRotaryFactor: 0.01},
		"odd":      {Theta: 1e4, PartialRotaryFactor: 0.3125},
		"theta":    {Theta: 1, PartialRotaryFactor: 1, Scaling: RopeScaling{Type: "yarn", Factor: 2, OriginalMaxPositionEmbeddings: 9, BetaFast: 32, BetaSlow: 1}},
		"longrope": {Theta: 1e4, PartialRotaryFactor: 1, Scaling: RopeScaling{Type: "longrope", Factor: 2}},
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
