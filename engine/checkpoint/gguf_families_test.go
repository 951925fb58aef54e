package checkpoint

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"vapp.dev/internal/goldentest"
)

// familyToy returns a file of an architecture of two layers: hidden 16, two heads of 8, one key/value
// head, with these tensors of each layer.
func familyToy(arch string, tensors map[string][]uint64) *toy {
	m := newToy("smollm").set("general.architecture", arch)
	for i := range m.pairs {
		m.pairs[i].key = strings.Replace(m.pairs[i].key, "llama.", arch+".", 1)
	}
	m.set(arch+".block_count", uint32(2)).set(arch+".embedding_length", uint32(16)).set(arch+".attention.key_length", uint32(8))
	m.tensors, m.data = nil, 0
	m.put("token_embd.weight", 16, toyVocab)
	m.put("output_norm.weight", 16)
	var names []string
	for name := range tensors {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, layer := range []string{"blk.0.", "blk.1."} {
		for _, name := range names {
			m.put(layer+name, tensors[name]...)
		}
	}
	return m
}

// put appends an f32 tensor.
func (m *toy) put(name string, dims ...uint64) {
	m.tensors = append(m.tensors, entry{name, dims, 0, uint64(m.data)})
	n := 4
	for _, d := range dims {
		n *= int(d)
	}
	m.data += (n + 31) &^ 31
}

// opened opens the file and checks that these tensors, by their Hugging Face names, are in it.
func opened(t *testing.T, m *toy, names ...string) *Checkpoint {
	t.Helper()
	c, err := Open(writeTemp(t, "m.gguf", m.bytes()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	for _, name := range names {
		if _, ok := c.Tensor(name); !ok {
			t.Errorf("%s is missing: %+v", name, c.Tensors())
		}
	}
	return c
}

func TestGemma4GGUF(t *testing.T) {
	m := familyToy("gemma4", map[string][]uint64{
		"attn_q.weight": {16, 16}, "attn_k.weight": {16, 8}, "attn_output.weight": {16, 16}, "ffn_norm.weight": {16}, "post_ffw_norm.weight": {16},
		"layer_output_scale.weight": {1}, "ffn_gate_inp.scale": {16}, "ffn_down_exps.scale": {4}, "ffn_gate_up_exps.weight": {16, 8, 4},
	})
	m.put("rope_freqs.weight", 8)
	m.set("gemma4.attention.key_length", uint32(16)).set("gemma4.attention.value_length", uint32(16)).set("gemma4.attention.key_length_swa", uint32(8))
	m.set("gemma4.attention.sliding_window", uint32(4)).set("gemma4.attention.head_count_kv", []int32{1, 2})
	m.set("gemma4.attention.sliding_window_pattern", rawValue(le(nil, uint32(kindArray), uint32(kindBool), uint64(2), true, false)))
	m.set("gemma4.rope.freq_base", float32(1e6)).set("gemma4.rope.freq_base_swa", float32(1e4)).set("gemma4.final_logit_softcapping", float32(30))
	m.set("gemma4.expert_count", uint32(4)).set("gemma4.expert_used_count", uint32(2)).set("gemma4.expert_feed_forward_length", uint32(4))
	b := m.bytes()
	factors := b[len(b)-32:] // the last tensor
	for i, x := range []float32{1, 1, 1e30, 1e30, 1e30, 1e30, 1e30, 1e30} {
		copy(factors[4*i:], le(nil, x))
	}
	c, err := Open(writeTemp(t, "m.gguf", b))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cfg := c.Config()
	s, err := cfg.Section("")
	if err != nil {
		t.Fatal(err)
	}
	full, err := cfg.Rope("full_attention")
	if err != nil || full.Theta != 1e6 || full.PartialRotaryFactor != 0.25 || full.Scaling.Type != "proportional" {
		t.Errorf("rope %+v, %v", full, err)
	}
	if cfg.Architecture != "Gemma4ForCausalLM" || cfg.HeadDim != 8 || s.CountOr("global_head_dim", 1, 99, 0) != 16 || cfg.NumKVHeads != 1 ||
		s.CountOr("num_global_key_value_heads", 1, 99, 0) != 2 || !s.FlagOr("attention_k_eq_v", false) || !s.FlagOr("enable_moe_block", false) ||
		dump(cfg.LayerTypes) != `["sliding_attention","full_attention"]` || cfg.SlidingWindow != 4 || cfg.FinalLogitSoftcap != 30 ||
		cfg.HiddenAct != "gelu_pytorch_tanh" || cfg.NumExperts != 4 || cfg.ExpertsPerToken != 2 || cfg.MoEIntermediateSize != 4 {
		t.Errorf("%+v", cfg)
	}
	for _, name := range []string{"pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight", "layer_scalar", "router.scale", "router.per_expert_scale", "experts.gate_up_proj"} {
		if _, ok := c.Tensor("model.layers.1." + name); !ok {
			t.Errorf("%s is missing", name)
		}
	}
}

// gemma4E returns a file of E2B's kind as llama.cpp's converter writes it: two layers with keys and
// values, of either type, and two that reuse them, with wider MLPs. reused is true if the latter
// have the projections that nothing reads.
func gemma4E(reused bool) *toy {
	m := familyToy("gemma4", nil)
	m.set("gemma4.block_count", uint32(4)).set("gemma4.attention.key_length", uint32(16)).set("gemma4.attention.value_length", uint32(16))
	m.set("gemma4.attention.key_length_swa", uint32(8)).set("gemma4.attention.sliding_window", uint32(4)).set("gemma4.attention.head_count_kv", uint32(1))
	m.set("gemma4.attention.sliding_window_pattern", rawValue(le(nil, uint32(kindArray), uint32(kindBool), uint64(4), true, false, true, false)))
	m.set("gemma4.attention.shared_kv_layers", uint32(2)).set("gemma4.embedding_length_per_layer_input", uint32(4))
	m.set("gemma4.feed_forward_length", []int32{8, 8, 16, 16})
	m.put("per_layer_token_embd.weight", 16, toyVocab)
	m.put("per_layer_model_proj.weight", 16, 16)
	m.put("per_layer_proj_norm.weight", 4)
	for i := range 4 {
		p, head, inner := fmt.Sprintf("blk.%d.", i), uint64(8), uint64(8)
		if i%2 == 1 {
			head = 16
		}
		if i >= 2 {
			inner = 16
		}
		m.put(p+"attn_q.weight", 16, 2*head)
		m.put(p+"attn_output.weight", 2*head, 16)
		if i < 2 || reused {
			m.put(p+"attn_k.weight", 16, head)
			m.put(p+"attn_v.weight", 16, head)
			m.put(p+"attn_k_norm.weight", head)
		}
		m.put(p+"ffn_up.weight", 16, inner)
		m.put(p+"inp_gate.weight", 16, 4)
		m.put(p+"proj.weight", 4, 16)
		m.put(p+"post_norm.weight", 16)
		m.put(p+"layer_output_scale.weight", 1)
	}
	return m
}

// TestGemma4EGGUF checks per-layer embeddings and layers without keys and values.
func TestGemma4EGGUF(t *testing.T) {
	for _, reused := range []bool{true, false} {
		c := opened(t, gemma4E(reused), "model.embed_tokens_per_layer.weight", "model.per_layer_model_projection.weight", "model.per_layer_projection_norm.weight",
			"model.layers.3.per_layer_input_gate.weight", "model.layers.3.per_layer_projection.weight", "model.layers.3.post_per_layer_input_norm.weight", "model.layers.3.layer_scalar")
		cfg := c.Config()
		s, err := cfg.Section("")
		if err != nil {
			t.Fatal(err)
		}
		if s.FlagOr("attention_k_eq_v", false) || !s.FlagOr("use_double_wide_mlp", false) || cfg.IntermediateSize != 8 || cfg.NumKVHeads != 1 ||
			s.CountOr("num_kv_shared_layers", 0, 9, 0) != 2 || s.CountOr("hidden_size_per_layer_input", 0, 9, 0) != 4 || s.CountOr("vocab_size_per_layer_input", 0, 999, 0) != cfg.VocabSize {
			t.Errorf("with unread projections %t: %s", reused, cfg.Raw)
		}
	}
	for _, c := range []struct {
		key   string
		value any
	}{
		{"gemma4.feed_forward_length", []int32{8, 16, 16, 16}}, {"gemma4.feed_forward_length", []int32{8, 8, 24, 24}},
		{"gemma4.feed_forward_length", []int32{8, 8, 16, 8}}, {"gemma4.feed_forward_length", []int32{8, 8}},
		{"gemma4.attention.shared_kv_layers", uint32(4)}, {"gemma4.embedding_length_per_layer_input", uint32(1 << 30)},
	} {
		_, err := openBytes("m.gguf", gemma4E(true).set(c.key, c.value).bytes())
		wantError(t, err, "m.gguf", c.key)
	}
}

// TestPhi3GGUF checks a long rope, which files have as two tensors, and matrices that stay fused.
func TestPhi3GGUF(t *testing.T) {
	m := familyToy("phi3", map[string][]uint64{"attn_qkv.weight": {16, 32}, "ffn_up.weight": {16, 32}})
	m.set("phi3.rope.dimension_count", uint32(6)).set("phi3.rope.scaling.original_context_length", uint32(32)).set("phi3.attention.sliding_window", uint32(0))
	m.set("phi3.rope.scaling.attn_factor", float32(1.25))
	m.put("rope_factors_long.weight", 3)
	m.put("rope_factors_short.weight", 3)
	b := m.bytes()
	for _, at := range []int{32, 64} {
		copy(b[len(b)-at:], le(nil, float32(1), float32(2), float32(at)))
	}
	c, err := Open(writeTemp(t, "m.gguf", b))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := c.Config().RopeScaling
	if r.Type != "longrope" || !slices.Equal(r.LongFactors, []float32{1, 2, 64}) || !slices.Equal(r.ShortFactors, []float32{1, 2, 32}) ||
		r.OriginalMaxPositionEmbeddings != 32 || r.AttentionFactor != 1.25 || c.Config().PartialRotaryFactor != 0.75 || c.Config().SlidingWindow != 0 {
		t.Errorf("%+v", c.Config())
	}
	for _, name := range []string{"self_attn.qkv_proj.weight", "mlp.gate_up_proj.weight"} {
		if _, ok := c.Tensor("model.layers.1." + name); !ok {
			t.Errorf("%s is missing", name)
		}
	}
	_, err = openBytes("m.gguf", familyToy("phi3", nil).set("phi3.rope.scaling.type", "su").bytes())
	wantError(t, err, "m.gguf", "phi3.rope.scaling.type")
}

// TestFamilyGGUF checks names and keys of the other families.
func TestFamilyGGUF(t *testing.T) {
	experts := map[string][]uint64{"ffn_gate_inp.weight": {16, 4}, "ffn_gate_exps.weight": {16, 8, 4}, "ffn_up_exps.weight": {16, 8, 4}, "ffn_down_exps.weight": {8, 16, 4}}
	with := func(more map[string][]uint64) map[string][]uint64 {
		out := map[string][]uint64{}
		for _, of := range []map[string][]uint64{experts, more} {
			for k, v := range of {
				out[k] = v
			}
		}
		return out
	}
	moe := func(m *toy, arch string) *toy {
		return m.set(arch+".expert_count", uint32(4)).set(arch+".expert_used_count", uint32(2)).set(arch+".expert_feed_forward_length", uint32(8))
	}
	c := opened(t, moe(familyToy("llama", with(map[string][]uint64{"attn_q.weight": {16, 16}})), "llama"), "model.layers.1.block_sparse_moe.gate.weight", "model.layers.1.block_sparse_moe.experts.down_proj")
	if q, _ := c.Tensor("model.layers.0.self_attn.q_proj.weight"); c.Config().Architecture != "MixtralForCausalLM" || q.RopeHead != 8 || c.Config().NumExperts != 4 {
		t.Errorf("mixtral: %+v, %+v", c.Config(), q)
	}
	c = opened(t, moe(familyToy("qwen2moe", with(map[string][]uint64{"ffn_gate_inp_shexp.weight": {16}, "ffn_up_shexp.weight": {16, 8}})), "qwen2moe"),
		"model.layers.1.mlp.gate.weight", "model.layers.1.mlp.experts.gate_proj", "model.layers.1.mlp.shared_expert.up_proj.weight")
	if x, _ := c.Tensor("model.layers.0.mlp.shared_expert_gate.weight"); !slices.Equal(x.Shape, []int64{1, 16}) {
		t.Errorf("the gate of the shared expert: %+v", x)
	}
	y := familyToy("mistral3", nil).set("mistral3.attention.temperature_scale", float32(0.25)).set("mistral3.rope.scaling.type", "yarn").set("mistral3.rope.scaling.factor", float32(16))
	c = opened(t, y.set("mistral3.rope.scaling.original_context_length", uint32(32)).set("mistral3.rope.scaling.yarn_log_multiplier", float32(1)))
	if r := c.Config().RopeScaling; c.Config().Architecture != "Ministral3ForCausalLM" || r.QueryBeta != 0.25 || r.OriginalMaxPositionEmbeddings != 32 || r.MScale != 1 || r.MScaleAllDim != 1 {
		t.Errorf("ministral3: %+v", c.Config())
	}
	_, err := openBytes("m.gguf", familyToy("mistral3", nil).set("mistral3.attention.temperature_scale", float32(0.25)).bytes())
	wantError(t, err, "m.gguf", "mistral3.attention.temperature_scale")
	m := moe(familyToy("glm4moe", with(map[string][]uint64{"exp_probs_b.bias": {4}, "post_attention_norm.weight": {16}})), "glm4moe").set("glm4moe.nextn_predict_layers", uint32(1))
	m.put("blk.1.nextn.eh_proj.weight", 32, 16)
	c = opened(t, m.set("glm4moe.rope.dimension_count", uint32(4)), "model.layers.0.mlp.gate.e_score_correction_bias", "model.layers.0.post_attention_layernorm.weight")
	if _, ok := c.Tensor("model.layers.1.mlp.gate.weight"); ok || c.Config().NumLayers != 1 || c.Config().PartialRotaryFactor != 0.5 {
		t.Errorf("glm4moe: %+v", c.Config())
	}
	l := moe(familyToy("llama4", with(map[string][]uint64{"ffn_gate_shexp.weight": {16, 8}, "ffn_down.weight": {8, 16}})), "llama4").set("llama4.interleave_moe_layer_step", uint32(2)).set("llama4.expert_used_count", uint32(1))
	c = opened(t, l, "model.layers.1.feed_forward.router.weight", "model.layers.1.feed_forward.experts.up_proj", "model.layers.0.feed_forward.shared_expert.gate_proj.weight", "model.layers.0.feed_forward.down_proj.weight")
	if s, err := c.Config().Section(""); err != nil || s.CountOr("attention_chunk_size", 0, 1e6, 0) != 8192 || s.CountOr("intermediate_size", 0, 99, 0) != 8 || s.CountOr("interleave_moe_layer_step", 0, 99, 0) != 2 || !s.FlagOr("use_qk_norm", false) || c.Config().LayerTypes[1] != "chunked_attention" {
		t.Errorf("llama4: %+v", c.Config())
	}
	_, err = openBytes("m.gguf", l.set("llama4.attention.sliding_window", uint32(0)).bytes())
	wantError(t, err, "m.gguf", "llama4.attention.sliding_window")
	c = opened(t, moe(familyToy("olmoe", with(map[string][]uint64{"attn_q_norm.weight": {16}})), "olmoe"), "model.layers.1.mlp.experts.up_proj", "model.layers.0.self_attn.q_norm.weight")
	if c.Config().Architecture != "OlmoeForCausalLM" || c.Config().ExpertsPerToken != 2 {
		t.Errorf("olmoe: %+v", c.Config())
	}
	c = opened(t, familyToy("granite", nil).set("granite.attention.scale", float32(0.5)).set("granite.logit_scale", float32(8)))
	if s, err := c.Config().Section(""); err != nil || s.RealOr("attention_multiplier", 0, 99, 0) != 0.5 || s.RealOr("logits_scaling", 0, 99, 0) != 8 {
		t.Errorf("granite: %+v", c.Config())
	}
	kv := func(heads ...int32) *toy {
		return familyToy("granite", nil).set("granite.attention.head_count_kv", heads).set("granite.rope.scaling.finetuned", true)
	}
	if c = opened(t, kv(1, 1)); c.Config().NumKVHeads != 1 { // Granite 4 with attention alone
		t.Errorf("granite 4: %+v", c.Config())
	}
	for _, heads := range [][]int32{{2, 1}, {0, 0}, {1}} {
		_, err = openBytes("m.gguf", kv(heads...).bytes())
		wantError(t, err, "m.gguf", "granite.attention.head_count_kv")
	}
	_, err = openBytes("m.gguf", kv(1, 1).set("granite.rope.scaling.finetuned", false).bytes())
	wantError(t, err, "m.gguf", "granite.rope.scaling.finetuned")
	m = familyToy("gemma3", map[string][]uint64{"post_attention_norm.weight": {16}, "ffn_norm.weight": {16}, "attn_q_norm.weight": {8}})
	c = opened(t, m.set("gemma3.attention.sliding_window", uint32(4)).set("gemma3.rope.scaling.type", "linear").set("gemma3.rope.scaling.factor", float32(8)),
		"model.layers.1.post_attention_layernorm.weight", "model.layers.1.pre_feedforward_layernorm.weight", "model.layers.0.self_attn.q_norm.weight")
	if s, err := c.Config().Section(""); err != nil || s.CountOr("query_pre_attn_scalar", 0, 999, 0) != 8 || c.Config().RopeScaling.Factor != 8 || c.Config().SlidingWindow != 4 {
		t.Errorf("gemma3: %+v", c.Config())
	}
}

// TestGGUFRemedies checks that errors about types and names of tensors say what to do.
func TestGGUFRemedies(t *testing.T) {
	for _, c := range []struct {
		field, remedy string
		spoil         func(*toy)
	}{
		{"blk.0.attn_q.weight", "take another quantization", func(m *toy) { m.tensors[2].kind = 77 }},
		{"blk.0.attn_q.weight", "take another quantization", func(m *toy) { m.tensors[2].kind = 41 }},
		{"blk.0.ffn_zz.weight", "convert the model again", func(m *toy) { m.tensors[2].name = "blk.0.ffn_zz.weight" }},
		{"blk.0.attn_q.weight", "fetch it again", func(m *toy) { m.tensors[2].offset += 64 }},
		{"blk.0.attn_q.weight", "fetch it again", func(m *toy) { m.tensors[2].offset -= 32 }},
	} {
		m := familyToy("llama", map[string][]uint64{"attn_q.weight": {16, 16}})
		c.spoil(m)
		_, err := openBytes("m.gguf", m.bytes())
		wantError(t, err, "m.gguf", c.field)
		if err == nil || !strings.Contains(err.Error(), c.remedy) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want one line with %q", err, c.remedy)
		}
	}
}

// TestOldGGUF checks files of version 2, keys about an importance matrix, which nothing reads, and that
// experts in tensors of their own are refused.
func TestOldGGUF(t *testing.T) {
	m := familyToy("llama", nil).set("quantize.imatrix.file", "imatrix.gguf").set("quantize.imatrix.entries_count", uint32(2))
	m.version = ggufOldest
	opened(t, m, "model.norm.weight")
	m = familyToy("llama", map[string][]uint64{"ffn_gate_inp.weight": {16, 4}, "ffn_up.3.weight": {16, 8}})
	_, err := openBytes("m.gguf", m.set("llama.expert_count", uint32(4)).set("llama.expert_used_count", uint32(2)).bytes())
	wantError(t, err, "m.gguf", "blk.0.ffn_up.3.weight")
	if err == nil || !strings.Contains(err.Error(), "one expert alone") {
		t.Errorf("got %v", err)
	}
}

// TestFusedGGUF checks Q, K and V in one matrix of a family that has three.
func TestFusedGGUF(t *testing.T) {
	c := opened(t, familyToy("llama", map[string][]uint64{"attn_qkv.weight": {16, 32}, "attn_qkv.bias": {32}}))
	at := int64(0)
	for i, name := range []string{"q_proj", "k_proj", "v_proj"} {
		w, _ := c.Tensor("model.layers.1.self_attn." + name + ".weight")
		b, _ := c.Tensor("model.layers.1.self_attn." + name + ".bias")
		rows := []int64{16, 8, 8}[i]
		if !slices.Equal(w.Shape, []int64{rows, 16}) || w.Bytes != rows*64 || !slices.Equal(b.Shape, []int64{rows}) || b.Bytes != rows*4 || (w.RopeHead == 8) != (i < 2) {
			t.Errorf("%s: %+v, %+v", name, w, b)
		}
		if i > 0 && w.Offset != at {
			t.Errorf("%s begins at %d, want %d", name, w.Offset, at)
		}
		at = w.Offset + w.Bytes
	}
	if !c.Config().AttentionBias {
		t.Error("no attention_bias")
	}
	_, err := openBytes("m.gguf", familyToy("llama", map[string][]uint64{"attn_qkv.weight": {16, 24}}).bytes())
	wantError(t, err, "m.gguf", "blk.0.attn_qkv.weight")
}

// TestDeepSeekConfig reads the two forms of kv_b_proj and the two routers.
func TestDeepSeekConfig(t *testing.T) {
	latent := func(tensors map[string][]uint64) *toy {
		return familyToy("deepseek2", tensors).set("deepseek2.rope.dimension_count", uint32(4)).set("deepseek2.attention.kv_lora_rank", uint32(16)).
			set("deepseek2.expert_count", uint32(4)).set("deepseek2.expert_used_count", uint32(2)).set("deepseek2.expert_feed_forward_length", uint32(8)).
			set("deepseek2.rope.scaling.type", "yarn").set("deepseek2.rope.scaling.factor", float32(40)).set("deepseek2.rope.scaling.original_context_length", uint32(64)).
			set("deepseek2.rope.scaling.yarn_log_multiplier", float32(0.0707))
	}
	whole := latent(map[string][]uint64{"attn_kv_b.weight": {16, 20}}).set("deepseek2.attention.value_length", uint32(6)).set("deepseek2.expert_weights_scale", float32(16))
	split := latent(map[string][]uint64{"attn_k_b.weight": {4, 16, 2}, "attn_v_b.weight": {16, 6, 2}}).set("deepseek2.attention.key_length", uint32(20)).
		set("deepseek2.attention.value_length", uint32(16)).set("deepseek2.attention.key_length_mla", uint32(8)).set("deepseek2.attention.value_length_mla", uint32(6)).
		set("deepseek2.attention.q_lora_rank", uint32(12)).set("deepseek2.expert_gating_func", uint32(2)).set("deepseek2.expert_weights_norm", true).
		set("deepseek2.expert_group_count", uint32(2)).set("deepseek2.expert_group_used_count", uint32(1)).set("deepseek2.leading_dense_block_count", uint32(1))
	for _, x := range []struct {
		m      *toy
		tensor string
		want   string
	}{
		{whole, "model.layers.1.self_attn.kv_b_proj.weight", "DeepseekV2ForCausalLM greedy 0 16 4 4 6 false 16 1 1 0 false"},
		{split, "model.layers.1.self_attn.k_b_proj.weight", "DeepseekV3ForCausalLM noaux_tc 12 16 4 4 6 true 1 2 1 1 true"},
	} {
		c := opened(t, x.m, x.tensor)
		s, err := c.Config().Section("")
		if err != nil {
			t.Fatal(err)
		}
		n := func(key string) int { return s.CountOr(key, 0, 1<<20, 0) }
		got := fmt.Sprint(c.Config().Architecture, " ", s.TextOr("topk_method", "noaux_tc"), " ", n("q_lora_rank"), n("kv_lora_rank"), n("qk_nope_head_dim"), n("qk_rope_head_dim"), n("v_head_dim"),
			" ", s.FlagOr("kv_b_split", false), " ", s.RealOr("routed_scaling_factor", 0, 100, 0), n("n_group"), n("topk_group"), n("first_k_dense_replace"), " ", s.FlagOr("norm_topk_prob", true))
		if got != x.want || s.Err() != nil {
			t.Errorf("%s, want %s; %v", got, x.want, s.Err())
		}
		if r := c.Config().RopeScaling; math.Abs(r.MScale-0.707) > 1e-6 || r.MScale != r.MScaleAllDim {
			t.Errorf("mscale %v and %v", r.MScale, r.MScaleAllDim)
		}
	}
	_, err := openBytes("m.gguf", latent(nil).set("deepseek2.attention.key_length", uint32(4)).bytes())
	wantError(t, err, "m.gguf", "deepseek2.attention.key_length")
}

// slidingFirst says that the first of two layers has a window.
var slidingFirst = rawValue(le(nil, uint32(kindArray), uint32(kindBool), uint64(2), true, false))

// ggufKeys are keys that files of an architecture must have beside those of familyToy.
var ggufKeys = map[string]map[string]any{
	"llama4":    {"interleave_moe_layer_step": uint32(1)},
	"deepseek2": {"attention.key_length": uint32(12), "attention.value_length": uint32(8), "attention.kv_lora_rank": uint32(16)},
	"gemma4":    {"attention.key_length_swa": uint32(8), "attention.sliding_window": uint32(4), "attention.sliding_window_pattern": slidingFirst, "rope.dimension_count_swa": uint32(8)},
}

// TestGLM opens a file of GLM-4-9B-Chat, whose Q, K and V are one matrix and whose heads are rotated in
// part.
func TestGLM(t *testing.T) {
	m := familyToy("chatglm", map[string][]uint64{
		"attn_norm.weight": {16}, "ffn_norm.weight": {16}, "attn_qkv.weight": {16, 32}, "attn_qkv.bias": {32}, "attn_output.weight": {16, 16},
		"ffn_up.weight": {16, 64}, "ffn_down.weight": {32, 16},
	}).set("chatglm.rope.dimension_count", uint32(4)).set("chatglm.feed_forward_length", uint32(32))
	c := opened(t, m, "model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.v_proj.bias", "model.layers.0.mlp.gate_up_proj.weight")
	if cfg := c.Config(); cfg.Architecture != "GlmForCausalLM" || cfg.PartialRotaryFactor != 0.5 || !cfg.AttentionBias {
		t.Errorf("%+v", cfg)
	}
	if q, _ := c.Tensor("model.layers.0.self_attn.q_proj.weight"); q.RopeHead != 0 || q.Shape[0] != 16 {
		t.Errorf("Q is %+v", q)
	}
}

// TestGGUFArchitectures opens a file of every architecture that is read: dense, with experts, with a
// window or a router of sigmoids. testdata/gguf_architectures.txt has llama.cpp's name and Hugging Face's of each.
func TestGGUFArchitectures(t *testing.T) {
	var text strings.Builder
	for _, arch := range slices.Sorted(maps.Keys(ggufArchs)) {
		found := map[string]bool{}
		var refused error
		for form := range 4 {
			m := familyToy(arch, nil).set(arch+".rope.dimension_count", uint32(8))
			if strings.HasPrefix(arch, "qwen35") {
				m = deltaToy(arch)
			} else if arch == "qwen3next" {
				m = nextToy(false)
			}
			for key, value := range ggufKeys[arch] {
				m.set(arch+"."+key, value)
			}
			if form&1 != 0 {
				m.set(arch+".expert_count", uint32(4)).set(arch+".expert_used_count", uint32(2)).set(arch+".expert_feed_forward_length", uint32(8))
			}
			if form&2 != 0 {
				m.set(arch+".attention.sliding_window", uint32(4)).set(arch+".attention.sliding_window_pattern", slidingFirst)
				if arch == "mistral3" {
					m.set("mistral3.attention.temperature_scale", float32(0.1)).set("mistral3.rope.scaling.type", "yarn")
					m.set("mistral3.rope.scaling.factor", float32(4)).set("mistral3.rope.scaling.original_context_length", uint32(64))
				}
				m.set(arch+".expert_gating_func", uint32(2)) // sigmoids
			}
			c, err := Open(writeTemp(t, "m.gguf", m.bytes()))
			if err != nil {
				refused = err
				continue
			}
			found[c.Config().Architecture] = true
			c.Close()
		}
		if len(found) == 0 {
			t.Errorf("no file of %s is read: %v; ggufKeys has what it needs", arch, refused)
		}
		for _, name := range slices.Sorted(maps.Keys(found)) {
			text.WriteString(arch + " " + name + "\n")
		}
	}
	goldentest.Compare(t, "testdata/gguf_architectures.txt", text.String())
}
