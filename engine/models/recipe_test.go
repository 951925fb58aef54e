package models

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// TestRecipes records published configs of the recipes whole and in parts, and plans their weights
// and workspace on all layouts.
func TestRecipes(t *testing.T) {
	for _, name := range []string{
		"gemma-3-270m", "gemma-3-12b", "gemma-2-2b", "phi-4", "phi-4-mini", "mistral-7b-v0.1", "Mistral-Small-3.2-24B-Instruct-2506", "granite-3.3-2b", "granite-4.0-micro", "smollm3-3b",
		"glm-4-9b-0414", "c4ai-command-r7b-12-2024", "c4ai-command-r-plus", "ERNIE-4.5-0.3B-PT", "internlm3-8b", "Ministral-3-8B-Base-2512", "OLMo-2-1124-7B-Instruct", "OLMo-2-0325-32B-Instruct",
	} {
		t.Run(name, func(t *testing.T) {
			cfg := alterConfig(t, name, nil)
			checkBuilt(t, name, Build{Shard: backend.Whole, Pipe: backend.Whole})
			checkBuilt(t, name, Build{Quantize: kernels.F8E4M3})
			for pipe := range 3 {
				checkBuilt(t, name, Build{Pipe: backend.Shard{Rank: pipe, World: 3}})
			}
			if cfg.VocabSize%2 == 0 {
				checkBuilt(t, name, Build{Shard: backend.Shard{Rank: 1, World: 2}, Pipe: backend.Shard{Rank: 1, World: 2}})
			}
		})
	}
}

// ops returns the ops of one type in a model's largest step.
func ops[T backend.Op](t *testing.T, m Model) (out []T) {
	t.Helper()
	p, err := recordStep(m, kernels.BF16, bucket)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range p.Ops {
		if o, ok := op.(T); ok {
			out = append(out, o)
		}
	}
	return out
}

// TestGemmaQuirks checks windows, ropes, scales and caps of Gemma 2 and 3 in the recorded ops.
func TestGemmaQuirks(t *testing.T) {
	m := publishedModel(t, "gemma-3-27b", Build{})
	full := 0
	for i, a := range ops[backend.Attention](t, m) {
		if want := 1024; (i+1)%6 == 0 {
			full++
			if a.Window != 0 {
				t.Errorf("layer %d has a window of %d", i, a.Window)
			}
		} else if a.Window != want {
			t.Errorf("layer %d has a window of %d", i, a.Window)
		}
		if math.Abs(float64(a.Scale)-1/math.Sqrt(168)) > 1e-7 || a.Softcap != 0 {
			t.Errorf("layer %d: scale %v, cap %v", i, a.Scale, a.Softcap)
		}
	}
	if full != 10 {
		t.Errorf("%d full layers", full)
	}
	if e := ops[backend.Embed](t, m); e[0].Scale != 73.5 { // √5376 = 73.32… in bf16
		t.Errorf("embeddings times %v", e[0].Scale)
	}
	m = publishedModel(t, "gemma-2-27b", Build{})
	for i, a := range ops[backend.Attention](t, m) {
		if (a.Window == 4096) != (i%2 == 0) || a.Softcap != 50 {
			t.Errorf("layer %d: window %d, cap %v", i, a.Window, a.Softcap)
		}
	}
	if c := ops[backend.Softcap](t, m); len(c) != 1 || c[0].Cap != 30 {
		t.Errorf("caps of logits: %+v", c)
	}
}

// TestGraniteMultipliers checks that the residual stream is divided by residual_multiplier in
// embeddings and epsilon, and nowhere else.
func TestGraniteMultipliers(t *testing.T) {
	m := publishedModel(t, "granite-3.3-8b", Build{})
	if e := ops[backend.Embed](t, m)[0]; math.Abs(float64(e.Scale)-12/0.22) > 1e-4 {
		t.Errorf("embeddings times %v", e.Scale)
	}
	norms := ops[backend.Norm](t, m)
	for i, n := range norms {
		if math.Abs(float64(n.Eps)/(1e-5/0.22/0.22)-1) > 1e-6 || (n.Scale != 0) != (i == len(norms)-1) {
			t.Errorf("norm %d: epsilon %v, scale %v", i, n.Eps, n.Scale)
		}
	}
	if s := norms[len(norms)-1].Scale; s != 1./16 {
		t.Errorf("logits times %v", s)
	}
	if a := ops[backend.Attention](t, m)[0]; a.Scale != 0.0078125 {
		t.Errorf("scores times %v", a.Scale)
	}
	pooled := publishedModel(t, "granite-3.3-8b", Build{Pooling: Pooling{Head: Hidden}})
	norms = ops[backend.Norm](t, pooled)
	if s := norms[len(norms)-1].Scale; s != 0 {
		t.Errorf("an embedding is scaled by %v", s)
	}
}

// TestNoRope checks which layers of SmolLM3 and Command-R7B do without a rope.
func TestNoRope(t *testing.T) {
	for name, rotates := range map[string]func(int) bool{
		"smollm3-3b":               func(i int) bool { return (i+1)%4 != 0 },
		"c4ai-command-r7b-12-2024": func(i int) bool { return (i+1)%4 != 0 },
	} {
		m := publishedModel(t, name, Build{})
		angles := map[backend.Value]backend.Angles{}
		for _, a := range ops[backend.Angles](t, m) {
			angles[a.Y] = a
		}
		for i, r := range ops[backend.Rope](t, m) {
			freqs := m.Weights()[angles[r.Angles].InvFreq].Parts[0].Values
			if turns := freqs[0] != 0; turns != rotates(i) || !turns && len(freqs) != 1 {
				t.Errorf("%s, layer %d: frequencies %v…", name, i, freqs[0])
			}
		}
	}
}

// TestInterleaved checks which families rotate neighbouring pairs.
func TestInterleaved(t *testing.T) {
	for name, want := range map[string]bool{"glm-4-9b-0414": true, "c4ai-command-r-v01": true, "baidu/ERNIE-4.5-0.3B-PT": true, "Qwen/Qwen3-4B": false} {
		m, err := buildModel(alterConfig(t, name, nil), Build{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range ops[backend.Rope](t, m) {
			if o.Interleaved != want {
				t.Errorf("%s: interleaved %v", name, o.Interleaved)
			}
		}
	}
}

// TestRecipeRefusals checks that configs that almost are a family's are refused by field and value.
func TestRecipeRefusals(t *testing.T) {
	checkRefusals(t, []refusal{
		{"gemma-3-1b", map[string]any{"hidden_activation": "gelu", "hidden_act": "gelu"}, Build{}, "hidden_act gelu is not supported: Gemma3ForCausalLM runs with silu or gelu_pytorch_tanh"},
		{"gemma-3-1b", map[string]any{"use_bidirectional_attention": true}, Build{}, "use_bidirectional_attention"},
		{"gemma-3-1b", map[string]any{"layer_types": slices.Repeat([]string{"linear_attention"}, 26)}, Build{}, `layer_types[0] "linear_attention"`},
		{"gemma-3-1b", nil, Build{Draft: 2}, "drafting with Gemma3ForCausalLM"},
		{"gemma-3-1b", nil, Build{Rebuild: true}, "keys rebuilt"},
		{"granite-3.3-2b", map[string]any{"rope_parameters": map[string]any{"full_attention": map[string]any{}}}, Build{}, "a rope that differs by layer"},
		{"granite-3.3-2b", nil, Build{Shard: backend.Shard{World: 2}}, "49159 tokens"},
		{"granite-3.3-2b", map[string]any{"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 16, "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1}}, Build{},
			"llama_4_scaling_beta 0.1 of GraniteForCausalLM"},
		{"mistral-7b-v0.3", map[string]any{"architectures": []string{"Ministral3ForCausalLM"}}, Build{}, "a rope of Ministral3ForCausalLM without a type"},
		{"phi-4", nil, Build{Shard: backend.Shard{World: 4}}, "10 key/value heads"},
		{"phi-4", map[string]any{"hidden_act": "gelu_new"}, Build{}, "hidden_act gelu_new"},
		{"ERNIE-4.5-0.3B-PT", map[string]any{"partial_rotary_factor": 0.5}, Build{}, "rotates part of a head"},
	})
	var fault *checkpoint.Error
	_, err := buildModel(alterConfig(t, "smollm3-3b", map[string]any{"no_rope_layers": []int{1, 0}}), Build{})
	if !errors.As(err, &fault) || !strings.Contains(err.Error(), "no_rope_layers: is not a list of 36 numbers") {
		t.Error(err)
	}
	_, err = buildModel(alterConfig(t, "gemma-3-1b", map[string]any{"sliding_window_pattern": 0, "layer_types": nil}), Build{})
	if !errors.As(err, &fault) || !strings.Contains(err.Error(), "sliding_window_pattern") {
		t.Error(err)
	}
	_, err = buildModel(alterConfig(t, "granite-3.3-2b", map[string]any{"residual_multiplier": 0}), Build{})
	if !errors.As(err, &fault) || !strings.Contains(err.Error(), "residual_multiplier") {
		t.Error(err)
	}
}

// TestRecipeDrafts records recipes as draft models, and checks that those with windows are refused.
func TestRecipeDrafts(t *testing.T) {
	open := func(name string) *checkpoint.Checkpoint {
		cfg := alterConfig(t, name, nil)
		tensors, err := Tensors(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ck, err := checkpoint.Dummy(cfg, tensors, 1)
		if err != nil {
			t.Fatal(err)
		}
		return ck
	}
	for _, name := range []string{"c4ai-command-r-v01", "granite-3.3-2b", "olmo-2-1124-7b", "smollm3-3b", "glm-4-9b-0414"} {
		m, err := NewWithDraft(open(name), open(name), Build{Draft: 2})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := recordStep(m, kernels.BF16, bucket); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var refused *UnsupportedError
	if _, err := NewWithDraft(open("mistral-7b-v0.1"), open("mistral-7b-v0.1"), Build{Draft: 2}); !errors.As(err, &refused) || !strings.Contains(err.Error(), "sliding windows") {
		t.Error(err)
	}
}

// TestLongWindows: a window of the model's whole length leaves each layer the rope of its kind.
func TestLongWindows(t *testing.T) {
	long := map[string]any{"sliding_window": 1 << 20, "layer_types": nil}
	rotations := func(name string, change map[string]any) (out []float32) {
		m, err := buildModel(alterConfig(t, name, change), Build{})
		if err != nil {
			t.Fatal(err)
		}
		freqs := map[backend.Value]float32{}
		for _, a := range ops[backend.Angles](t, m) {
			freqs[a.Y] = m.Weights()[a.InvFreq].Parts[0].Values[1%len(m.Weights()[a.InvFreq].Parts[0].Values)]
		}
		for _, r := range ops[backend.Rope](t, m) {
			out = append(out, freqs[r.Angles])
		}
		return out
	}
	for _, name := range []string{"gemma-3-1b", "c4ai-command-r7b-12-2024"} {
		if want, got := rotations(name, nil), rotations(name, long); !slices.Equal(got, want) {
			t.Errorf("%s: rotations of layers %v, with short windows %v", name, got, want)
		}
	}
}

// TestTemperature: Ministral 3 scales queries every 16384 positions, and keys never.
func TestTemperature(t *testing.T) {
	for name, want := range map[string]backend.Temperature{"Ministral-3-3B-Base-2512": {Beta: 0.1, Every: 16384}, "mistral-7b-v0.3": {}} {
		m := publishedModel(t, name, Build{})
		angles := map[backend.Value]backend.Temperature{}
		for _, a := range ops[backend.Angles](t, m) {
			angles[a.Y] = a.Temperature
		}
		for i, r := range ops[backend.Rope](t, m) {
			if r.Tempered != (want.Every > 0) || r.Tempered && angles[r.QueryAngles] != want || angles[r.Angles].Every != 0 {
				t.Errorf("%s, layer %d: queries %+v, keys %+v", name, i, angles[r.QueryAngles], angles[r.Angles])
			}
		}
	}
}

// TestCaps: a cap of null is none, an absent one has Gemma 2's default.
func TestCaps(t *testing.T) {
	for want, change := range map[float32]map[string]any{0: {"attn_logit_softcapping": nil, "final_logit_softcapping": nil}, 50: nil} {
		m, err := buildModel(alterConfig(t, "gemma-2-2b", change), Build{})
		if err != nil {
			t.Fatal(err)
		}
		if a, c := ops[backend.Attention](t, m)[0], ops[backend.Softcap](t, m); a.Softcap != want || (len(c) == 1) != (want != 0) {
			t.Errorf("%v: cap of scores %v, of logits %v", change, a.Softcap, c)
		}
	}
}

// TestCommandLength: Command-R's sequences are as long as model_max_length says.
func TestCommandLength(t *testing.T) {
	if c := alterConfig(t, "c4ai-command-r-v01", nil); c.MaxPositionEmbeddings != 131072 {
		t.Errorf("%d positions", c.MaxPositionEmbeddings)
	}
}

// TestSparseStep: every second layer of a Qwen3-MoE with decoder_sparse_step 2 has experts.
func TestSparseStep(t *testing.T) {
	for step, want := range map[int]int{1: 48, 2: 24, 3: 16} {
		m, err := buildModel(alterConfig(t, "Qwen/Qwen3-30B-A3B", map[string]any{"decoder_sparse_step": step}), Build{})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(ops[backend.Experts](t, m)); n != want {
			t.Errorf("decoder_sparse_step %d: %d layers with experts, want %d", step, n, want)
		}
	}
}

// TestEachHead checks a rank's part of a norm whose heads have weights of their own.
func TestEachHead(t *testing.T) {
	w := rankWeights(t, "tiny-cohere")["layers.0.q_norm"]
	if w.Cols != 32 || w.Parts[0].Row0 != 2 || w.Parts[0].Rows != 2 {
		t.Errorf("rank 1 of 2: %+v", w)
	}
}
