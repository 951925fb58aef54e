package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"strings"
	"testing"
)

func readConfig(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/configs/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseConfigLlama(t *testing.T) {
	raw := readConfig(t, "llama-3.2-1b")
	got, err := ParseConfig("config.json", raw)
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Raw) != string(raw) {
		t.Error("Raw is not the file")
	}
	got.Raw = nil
	want := Config{
		Architecture: "LlamaForCausalLM", ModelType: "llama", Dialect: "huggingface",
		HiddenSize: 2048, IntermediateSize: 8192, NumLayers: 16, NumHeads: 32, NumKVHeads: 8, HeadDim: 64,
		VocabSize: 128256, MaxPositionEmbeddings: 131072, RMSNormEps: 1e-5, RopeTheta: 500000, PartialRotaryFactor: 1,
		RopeScaling:       RopeScaling{Type: "llama3", Factor: 32, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositionEmbeddings: 8192},
		TieWordEmbeddings: true, HiddenAct: "silu", TorchDtype: "bfloat16", BosTokenID: 128000, EosTokenIDs: []int{128001},
	}
	if g, w := dump(got), dump(want); g != w {
		t.Errorf("config\n got %s\nwant %s", g, w)
	}
}

// TestParseConfigFamilies checks that configs of newer families are read without loss: nested text
// configs, ropes by layer type, several EOS ids.
func TestParseConfigFamilies(t *testing.T) {
	read := func(name string) Config {
		c, err := ParseConfig(name, readConfig(t, name))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	gemma := read("gemma-4-26b-a4b")
	if gemma.Architecture != "Gemma4ForConditionalGeneration" || gemma.ModelType != "gemma4" || gemma.HiddenSize != 2816 ||
		gemma.HiddenAct != "gelu_pytorch_tanh" || len(gemma.LayerTypes) != 30 || gemma.SlidingWindow != 1024 ||
		dump(gemma.EosTokenIDs) != "[1,106]" || gemma.RopeByLayerType["full_attention"].PartialRotaryFactor != 0.25 ||
		gemma.RopeByLayerType["full_attention"].Scaling.Type != "proportional" || gemma.RopeByLayerType["sliding_attention"].Theta != 10000 {
		t.Errorf("gemma 4: %+v", gemma)
	}
	if _, err := gemma.RopeInvFreq(); err == nil {
		t.Error("gemma 4 has one rope for all layers")
	}
	oss := read("gpt-oss-20b")
	if oss.RopeScaling.Type != "yarn" || oss.RopeScaling.Factor != 32 || oss.RopeScaling.OriginalMaxPositionEmbeddings != 4096 ||
		!strings.Contains(string(oss.QuantizationConfig), "mxfp4") || oss.BosTokenID != -1 {
		t.Errorf("gpt-oss: %+v", oss)
	}
	if _, err := oss.RopeInvFreq(); err == nil || !strings.Contains(err.Error(), "yarn") {
		t.Errorf("yarn: %v", err)
	}
	qwen := read("qwen3.5-27b-fp8")
	if qwen.HeadDim != 256 || qwen.RopeTheta != 1e7 || qwen.PartialRotaryFactor != 0.25 || qwen.QuantizationConfig == nil || len(qwen.LayerTypes) != 64 {
		t.Errorf("qwen 3.5: %+v", qwen)
	}
	if q := read("qwen2-7b-instruct"); q.HeadDim != 128 || q.NumKVHeads != 4 || q.RopeScaling.Type != "" {
		t.Errorf("qwen 2: %+v", q)
	}
}

// small returns a valid config; tests change one key of it.
func small() map[string]any {
	return map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
		"max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2,
	}
}

func parseSmall(t *testing.T, change map[string]any) (Config, error) {
	t.Helper()
	m := small()
	for k, v := range change {
		m[k] = v
		if v == nil {
			delete(m, k)
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return ParseConfig("dir/config.json", b)
}

// TestRopeDialects checks that both of transformers' spellings give the same config.
func TestRopeDialects(t *testing.T) {
	llama3 := map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
	inside := maps.Clone(llama3)
	inside["rope_theta"] = 5e5
	older := maps.Clone(llama3)
	delete(older, "rope_type")
	older["type"] = "llama3"
	var want string
	for _, change := range []map[string]any{
		{"rope_theta": 5e5, "rope_scaling": llama3},
		{"rope_theta": nil, "rope_parameters": inside},
		{"rope_theta": 5e5, "rope_scaling": older},
		{"rope_theta": 5e5, "rope_parameters": llama3},
	} {
		c, err := parseSmall(t, change)
		if err != nil {
			t.Fatal(err)
		}
		got := dump([]any{c.RopeTheta, c.RopeScaling})
		if want == "" {
			want = got
		}
		if got != want || c.RopeTheta != 5e5 || c.RopeScaling.Factor != 8 {
			t.Errorf("%v\n got %s\nwant %s", change, got, want)
		}
	}
	for _, change := range []map[string]any{{}, {"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 10000}}} {
		if c, err := parseSmall(t, change); err != nil || c.RopeTheta != 10000 || c.RopeScaling.Type != "" {
			t.Errorf("plain rope: %v, %v", c.RopeScaling, err)
		}
	}
}

// TestRopeInvFreq checks the three bands of llama3 against hand-worked values
// of Llama 3.2 (θ = 500000, d = 64, factor 32, 1 and 4, 8192).
func TestRopeInvFreq(t *testing.T) {
	c, err := ParseConfig("config.json", readConfig(t, "llama-3.2-1b"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.RopeInvFreq()
	if err != nil {
		t.Fatal(err)
	}
	near := func(i int, want float64) {
		t.Helper()
		if math.Abs(float64(got[i])/want-1) > 1e-6 {
			t.Errorf("frequency %d is %v, want %v", i, got[i], want)
		}
	}
	plain := func(i int) float64 { return math.Pow(500000, -float64(i)/32) }
	near(0, 1)
	near(14, plain(14)) // wavelength 1955, below 8192/4
	// Wavelengths 2947 to 6693 are interpolated: s = (8192/wavelength − 1)/3.
	for i := 15; i <= 17; i++ {
		s := (8192*plain(i)/(2*math.Pi) - 1) / 3
		near(i, plain(i)*((1-s)/32+s))
	}
	near(18, plain(18)/32) // wavelength 10087, above 8192
	near(31, plain(31)/32)
}

// TestBadConfig checks that each wrong value is one error that names its field.
func TestBadConfig(t *testing.T) {
	cases := []struct {
		field  string
		change map[string]any
	}{
		{"architectures", map[string]any{"architectures": nil}},
		{"architectures", map[string]any{"architectures": "LlamaForCausalLM"}},
		{"architectures", map[string]any{"architectures": []string{}}},
		{"model_type", map[string]any{"model_type": nil}},
		{"model_type", map[string]any{"model_type": 7}},
		{"hidden_size", map[string]any{"hidden_size": nil}},
		{"hidden_size", map[string]any{"hidden_size": -64}},
		{"hidden_size", map[string]any{"hidden_size": 0}},
		{"hidden_size", map[string]any{"hidden_size": 1 << 60}},
		{"hidden_size", map[string]any{"hidden_size": json.Number("1152921504606846976000")}},
		{"hidden_size", map[string]any{"hidden_size": 64.5}},
		{"hidden_size", map[string]any{"hidden_size": "64"}},
		{"hidden_size", map[string]any{"hidden_size": []int{64}}},
		{"hidden_size", map[string]any{"hidden_size": 66}},
		{"intermediate_size", map[string]any{"intermediate_size": nil}},
		{"num_hidden_layers", map[string]any{"num_hidden_layers": 1025}},
		{"num_attention_heads", map[string]any{"num_attention_heads": 0}},
		{"num_key_value_heads", map[string]any{"num_key_value_heads": 3}},
		{"head_dim", map[string]any{"head_dim": 15}},
		{"head_dim", map[string]any{"head_dim": -1}},
		{"vocab_size", map[string]any{"vocab_size": 1 << 25}},
		{"max_position_embeddings", map[string]any{"max_position_embeddings": nil}},
		{"rms_norm_eps", map[string]any{"rms_norm_eps": json.Number("1e400")}},
		{"rms_norm_eps", map[string]any{"rms_norm_eps": "NaN"}},
		{"rms_norm_eps", map[string]any{"rms_norm_eps": 0}},
		{"rope_theta", map[string]any{"rope_theta": -1}},
		{"rope_scaling", map[string]any{"rope_scaling": "llama3"}},
		{"rope_scaling.rope_type", map[string]any{"rope_scaling": map[string]any{"factor": 2}}},
		{"rope_scaling.factor", map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3"}}},
		{"rope_scaling.llama_4_scaling_beta", map[string]any{"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 16, "original_max_position_embeddings": 16384, "llama_4_scaling_beta": -0.1}}},
		{"rope_scaling.llama_4_scaling_beta", map[string]any{"rope_scaling": map[string]any{"rope_type": "linear", "factor": 16, "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1}}},
		{"rope_scaling.factor", map[string]any{"rope_scaling": map[string]any{"rope_type": "linear"}}},
		{"rope_scaling.factor", map[string]any{"rope_scaling": map[string]any{"rope_type": "dynamic"}}},
		{"rope_scaling.alpha", map[string]any{"rope_scaling": map[string]any{"rope_type": "dynamic", "alpha": 0.5}}},
		{"rope_scaling.short_factor", map[string]any{"rope_scaling": map[string]any{"rope_type": "longrope"}}},
		{"rope_scaling.long_factor", map[string]any{"rope_scaling": map[string]any{"rope_type": "longrope", "short_factor": []int{1}, "long_factor": []any{"a"}}}},
		{"original_max_position_embeddings", map[string]any{"original_max_position_embeddings": 1, "rope_scaling": map[string]any{"rope_type": "longrope", "short_factor": []int{1}, "long_factor": []int{1}}}},
		{"rope_scaling.high_freq_factor", map[string]any{"rope_scaling": map[string]any{
			"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 3, "original_max_position_embeddings": 8192}}},
		{"rope_parameters.rope_theta", map[string]any{"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": "big"}}},
		{"rope_parameters.full.rope_theta", map[string]any{"rope_parameters": map[string]any{"full": map[string]any{"rope_theta": 0}}}},
		{"tie_word_embeddings", map[string]any{"tie_word_embeddings": "yes"}},
		{"bos_token_id", map[string]any{"bos_token_id": 320}},
		{"bos_token_id", map[string]any{"bos_token_id": []int{1, 2}}},
		{"eos_token_id", map[string]any{"eos_token_id": []any{1, -1}}},
		{"eos_token_id", map[string]any{"eos_token_id": map[string]any{}}},
		{"layer_types", map[string]any{"layer_types": []string{"full_attention"}}},
		{"text_config", map[string]any{"text_config": 3}},
		{"text_config.hidden_size", map[string]any{"text_config": map[string]any{"hidden_size": -1}}},
		{"torch_dtype", map[string]any{"torch_dtype": strings.Repeat("x", 5000)}},
	}
	for _, c := range cases {
		_, err := parseSmall(t, c.change)
		wantError(t, err, "dir/config.json", c.field)
	}
	for text, field := range map[string]string{
		"":                       "",
		"[]":                     "",
		"null":                   "",
		`{"a": 1} x`:             "a",
		`{"a": 1, "eps": NaN}`:   "eps",
		`{"a": {"b": Infinity}`:  "a",
		strings.Repeat("[", 1e5): "",
	} {
		_, err := ParseConfig("dir/config.json", []byte(text))
		wantError(t, err, "dir/config.json", field)
	}
}

// wantError checks that err is one short-line *Error of file and field.
func wantError(t *testing.T, err error, file, field string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("%s %s: got %v, want an *Error", file, field, err)
		return
	}
	if e.File != file || e.Field != field || e.Msg == "" {
		t.Errorf("got file %q, field %q (%s); want %q, %q", e.File, e.Field, e.Msg, file, field)
	}
	if s := err.Error(); len(s) > 700 || strings.Contains(s, "\n") {
		t.Errorf("%d bytes of message, or several lines: %.200q", len(s), s)
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, name := range []string{"llama-3.2-1b", "gemma-4-26b-a4b", "gpt-oss-20b", "qwen3.5-27b-fp8"} {
		f.Add(readConfig(f, name))
	}
	f.Add([]byte(`{"rms_norm_eps": NaN}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseConfig("config.json", b)
		if err != nil {
			wantErrorType(t, err)
			return
		}
		if c.HiddenSize < 1 || c.NumHeads%c.NumKVHeads != 0 || c.HeadDim < 2 || c.VocabSize < 1 || c.NumLayers > maxLayers {
			t.Errorf("accepted %+v", c)
		}
		freq, err := c.RopeInvFreq()
		if err != nil {
			wantErrorType(t, err)
		}
		for _, x := range freq {
			if !finite(float64(x)) {
				t.Errorf("frequency %v from %+v", x, c.RopeScaling)
			}
		}
	})
}

func wantErrorType(t *testing.T, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%T %q is no one-line *Error", err, err)
	}
}

// TestDefaults compares what absent keys count as with transformers (testdata/configs/defaults.py), and
// checks that null is no default.
func TestDefaults(t *testing.T) {
	b, err := os.ReadFile("testdata/configs/defaults.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]struct {
		Theta  float64 `json:"rope_theta"`
		Head   int     `json:"head_dim"`
		Window int     `json:"sliding_window"`
		Part   float64 `json:"partial_rotary_factor"`
	}
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	const sizes = `{"architectures": ["XForCausalLM"], "vocab_size": 1000, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
		"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5`
	for kind, w := range want {
		c, err := ParseConfig("config.json", fmt.Appendf(nil, `%s, "model_type": %q}`, sizes, kind))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if c.RopeTheta != w.Theta || c.HeadDim != w.Head || c.SlidingWindow != w.Window || c.PartialRotaryFactor != w.Part {
			t.Errorf("%s: theta %v, heads of %d, window %d, part %v; want %+v", kind, c.RopeTheta, c.HeadDim, c.SlidingWindow, c.PartialRotaryFactor, w)
		}
		if c, err := ParseConfig("config.json", fmt.Appendf(nil, `%s, "model_type": %q, "sliding_window": null, "head_dim": null}`, sizes, kind)); err != nil || c.SlidingWindow != 0 || c.HeadDim != 64 {
			t.Errorf("%s with null: %+v, %v", kind, c, err)
		}
	}
}
