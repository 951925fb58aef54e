package checkpoint

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// ggufArch describes a GGUF architecture in Hugging Face terms.
type ggufArch struct {
	architecture string
	modelType    string
	permutesQK   bool              // the converter interleaves the rows of Q and K
	names        map[string]string // of tensors of a layer that differ from ggufNames
	// config adds what is special about the family to the config; nil: nothing.
	config func(f *ggufFields, arch string, h hfConfig)
}

// hfConfig is a config.json under construction.
type hfConfig map[string]any

// ggufArchs lists the architectures that are read, under llama.cpp's names. Families that no engine
// runs are refused by their own name later.
var ggufArchs = map[string]ggufArch{
	"llama":         {"LlamaForCausalLM", "llama", true, mixtralNames, llamaConfig},
	"llama4":        {"Llama4ForCausalLM", "llama4_text", false, llama4Names, llama4Config},
	"mistral3":      {"MistralForCausalLM", "mistral", true, nil, mistralConfig},
	"internlm2":     {"LlamaForCausalLM", "llama", true, nil, nil}, // Llama, once Q, K and V are taken apart
	"qwen2":         {"Qwen2ForCausalLM", "qwen2", false, nil, nil},
	"qwen2moe":      {"Qwen2MoeForCausalLM", "qwen2_moe", false, qwenExpertNames, qwen2MoEConfig},
	"qwen35":        {"Qwen3_5ForCausalLM", "qwen3_5_text", false, qwen35Names, qwen35Config},
	"qwen35moe":     {"Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", false, qwen35Names, qwen35Config},
	"qwen3next":     {"Qwen3NextForCausalLM", "qwen3_next", false, qwen3NextNames, qwen35Config},
	"qwen3":         {"Qwen3ForCausalLM", "qwen3", false, nil, nil},
	"qwen3moe":      {"Qwen3MoeForCausalLM", "qwen3_moe", false, qwenExpertNames, qwen3MoEConfig},
	"gpt-oss":       {"GptOssForCausalLM", "gpt_oss", false, gptOssNames, gptOssConfig},
	"gemma":         {"GemmaForCausalLM", "gemma", false, nil, gemmaConfig},
	"gemma2":        {"Gemma2ForCausalLM", "gemma2", false, gemmaNames, gemma2Config},
	"gemma3":        {"Gemma3ForCausalLM", "gemma3_text", false, gemmaNames, gemma3Config},
	"gemma4":        {"Gemma4ForCausalLM", "gemma4_text", false, gemma4Names, gemma4Config},
	"phi3":          {"Phi3ForCausalLM", "phi3", false, phi3Names, phi3Config},
	"granite":       {"GraniteForCausalLM", "granite", true, nil, graniteConfig},
	"granitemoe":    {"GraniteMoeForCausalLM", "granitemoe", true, graniteExpertNames, graniteConfig},
	"olmo2":         {"Olmo2ForCausalLM", "olmo2", false, olmo2Names, olmo2Config},
	"olmoe":         {"OlmoeForCausalLM", "olmoe", false, qwenExpertNames, olmoeConfig},
	"smollm3":       {"SmolLM3ForCausalLM", "smollm3", true, nil, nil},
	"chatglm":       {"GlmForCausalLM", "glm", false, glmNames, partialRope},
	"glm4":          {"Glm4ForCausalLM", "glm4", false, glm4Names, partialRope},
	"glm4moe":       {"Glm4MoeForCausalLM", "glm4_moe", false, glm4ExpertNames, glm4MoEConfig},
	"command-r":     {"CohereForCausalLM", "cohere", false, nil, cohereConfig},
	"cohere2":       {"Cohere2ForCausalLM", "cohere2", false, nil, cohereConfig},
	"deepseek2":     {"DeepseekV2ForCausalLM", "deepseek_v2", false, deepseekNames, deepseekConfig},
	"ernie4_5":      {"Ernie4_5ForCausalLM", "ernie4_5", false, nil, nil},
	"ernie4_5-moe":  {"Ernie4_5_MoeForCausalLM", "ernie4_5_moe", false, ernieExpertNames, ernieMoEConfig},
	"hunyuan-dense": {"HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", false, hunyuanNames, nil},
}

// readArchs returns the names of the architectures that are read.
func readArchs() string { return strings.Join(slices.Sorted(maps.Keys(ggufArchs)), ", ") }

// llamaConfig makes a Mixtral of a llama file with experts.
func llamaConfig(f *ggufFields, arch string, h hfConfig) {
	if f.count(arch+".expert_count", 0, maxExperts, 0) == 0 {
		return
	}
	h["architectures"], h["model_type"] = []string{"MixtralForCausalLM"}, "mixtral"
	f.experts(arch, h)
}

// llama4Config reads Llama 4. llama.cpp has numbers of its own for what files lack: chunks of 8192, every
// fourth layer without them and without a rope, the temperature there, and heads of Q and K that are
// normalized unless there are 128 experts.
func llama4Config(f *ggufFields, arch string, h hfConfig) {
	f.experts(arch, h)
	h["intermediate_size_mlp"], h["intermediate_size"] = h["intermediate_size"], f.count(arch+".expert_feed_forward_length", 1, maxIntermediate, -1)
	delete(h, "moe_intermediate_size")
	h["interleave_moe_layer_step"] = f.count(arch+".interleave_moe_layer_step", 1, maxLayers, -1)
	h["use_qk_norm"] = h["num_experts"] != 128
	h["attention_chunk_size"], h["floor_scale"], h["attn_scale"], h["attn_temperature_tuning"], h["no_rope_layer_interval"] = 8192, 8192, 0.1, true, 4
	if f.count(arch+".attention.sliding_window", 0, maxPositions, 8192) == 0 {
		f.fail(arch+".attention.sliding_window", "is 0: layers that all see every position are not read")
	}
	period := 4
	if v, ok := f.g.values[arch+".attention.sliding_window_pattern"]; ok && v.kind == kindArray {
		for i, types := 0, f.layerTypes(arch, h); i < len(types); i++ {
			if types[i] == "sliding_attention" {
				types[i] = "chunked_attention"
			}
		}
		return
	} else if ok {
		period = f.count(arch+".attention.sliding_window_pattern", 1, maxLayers, 4)
	}
	if f.err != nil {
		return
	}
	types := make([]string, h["num_hidden_layers"].(int))
	for i := range types {
		types[i] = "chunked_attention"
		if (i+1)%period == 0 {
			types[i] = "full_attention"
		}
	}
	h["layer_types"] = types
}

// mistralConfig makes a Ministral 3 of a file with a temperature. llama.cpp's factor of cosines and
// sines is 1 for the multiplier that is written then, the model's mscale_all_dim.
func mistralConfig(f *ggufFields, arch string, h hfConfig) {
	h["sliding_window"] = nil
	key := arch + ".attention.temperature_scale"
	beta := f.real(key, 0, 1e3, 0)
	if beta == 0 || f.err != nil {
		return
	}
	scaling, ok := h["rope_scaling"].(map[string]any)
	if !ok || scaling["rope_type"] != "yarn" {
		f.fail(key, "is %v in a file whose rope is not of the type yarn", beta)
		return
	}
	h["architectures"], h["model_type"] = []string{"Ministral3ForCausalLM"}, "ministral3"
	scaling["llama_4_scaling_beta"] = beta
	if m := f.real(arch+".rope.scaling.yarn_log_multiplier", 0, 1e3, 0); m != 0 {
		scaling["mscale"], scaling["mscale_all_dim"] = m, m
	}
}

// experts reads the number of experts and how a router selects them.
func (f *ggufFields) experts(arch string, h hfConfig) {
	n := f.count(arch+".expert_count", 1, maxExperts, -1)
	h["num_experts"], h["num_local_experts"] = n, n
	h["num_experts_per_tok"] = f.count(arch+".expert_used_count", 1, int64(max(1, n)), -1)
	if width := f.count(arch+".expert_feed_forward_length", 0, maxIntermediate, 0); width > 0 {
		h["moe_intermediate_size"] = width
	}
	if width := f.count(arch+".expert_shared_feed_forward_length", 0, maxIntermediate, 0); width > 0 {
		h["shared_expert_intermediate_size"], h["shared_intermediate_size"] = width, width
	}
}

func qwen2MoEConfig(f *ggufFields, arch string, h hfConfig) {
	f.experts(arch, h)
	h["norm_topk_prob"], h["decoder_sparse_step"] = false, 1
}

func olmoeConfig(f *ggufFields, arch string, h hfConfig) {
	f.experts(arch, h)
	h["norm_topk_prob"] = false
}

func qwen3MoEConfig(f *ggufFields, arch string, h hfConfig) {
	f.experts(arch, h)
	h["norm_topk_prob"], h["decoder_sparse_step"] = true, 1
}

// qwen35Config reads Qwen3.5 and Qwen3-Next, most of whose layers are delta nets. Layers that predict
// further tokens come last and are not read. Files of Qwen3-Next have in_proj_qkvz in two matrices, qkv
// and z; the first ones have it as the published model does.
func qwen35Config(f *ggufFields, arch string, h hfConfig) {
	partialRope(f, arch, h)
	if arch != "qwen35" {
		f.experts(arch, h)
	}
	if arch == "qwen3next" {
		fused := slices.ContainsFunc(f.g.tensors, func(t TensorInfo) bool { return strings.HasSuffix(t.Name, ".ssm_in.weight") })
		h["norm_topk_prob"], h["decoder_sparse_step"], h["in_proj_qkvz_split"] = true, 1, !fused
	}
	if further := f.count(arch+".nextn_predict_layers", 0, maxLayers, 0); further > 0 && f.err == nil {
		h["num_hidden_layers"] = h["num_hidden_layers"].(int) - further
	}
	values := f.count(arch+".ssm.time_step_rank", 1, maxHeads, -1)
	inner := f.count(arch+".ssm.inner_size", 1, maxHidden, -1)
	keys := f.count(arch+".ssm.group_count", 1, maxHeads, -1)
	h["linear_conv_kernel_dim"] = f.count(arch+".ssm.conv_kernel", 2, 256, -1)
	h["linear_key_head_dim"] = f.count(arch+".ssm.state_size", 1, maxHeadDim, -1)
	if f.err != nil {
		return
	}
	if inner%values != 0 || values%keys != 0 {
		f.fail(arch+".ssm.time_step_rank", "is %d value heads; they have to divide ssm.inner_size %d, and ssm.group_count %d key heads them", values, inner, keys)
	}
	h["linear_num_value_heads"], h["linear_num_key_heads"], h["linear_value_head_dim"] = values, keys, inner/max(1, values)
	h["full_attention_interval"] = f.count(arch+".full_attention_interval", 1, maxLayers, 4)
	key := arch + ".attention.recurrent_layers"
	v, ok := f.g.values[key]
	if !ok {
		return
	}
	layers := h["num_hidden_layers"].(int)
	if v.kind != kindArray || v.elem != kindBool || v.n < layers {
		f.fail(key, "is no list of %d booleans, one a layer", layers)
		return
	}
	h["layer_types"] = markedLayers(v, layers, "linear_attention")
}

func gptOssConfig(f *ggufFields, arch string, h hfConfig) {
	f.experts(arch, h)
	h["intermediate_size"] = f.count(arch+".expert_feed_forward_length", 1, maxIntermediate, int64(max(1, h["intermediate_size"].(int))))
	delete(h, "moe_intermediate_size")
	h["sliding_window"] = f.count(arch+".attention.sliding_window", 1, maxPositions, -1)
}

func gemmaConfig(_ *ggufFields, _ string, h hfConfig) {
	delete(h, "hidden_act")
	h["hidden_activation"] = "gelu_pytorch_tanh"
}

// gemma2Config reads Gemma 2. Files lack the scale of scores: llama.cpp takes the width of a head,
// except in the largest model.
func gemma2Config(f *ggufFields, arch string, h hfConfig) {
	gemmaConfig(f, arch, h)
	h["sliding_window"] = f.count(arch+".attention.sliding_window", 0, maxPositions, 4096)
	h["attn_logit_softcapping"] = f.real(arch+".attn_logit_softcapping", 0, 1e6, 50)
	h["final_logit_softcapping"] = f.real(arch+".final_logit_softcapping", 0, 1e6, 30)
	f.queryScale(h, 46)
}

// gemma3Config reads Gemma 3; scaling of its rope applies to full layers only.
func gemma3Config(f *ggufFields, arch string, h hfConfig) {
	gemmaConfig(f, arch, h)
	h["sliding_window"] = f.count(arch+".attention.sliding_window", 0, maxPositions, 0)
	h["final_logit_softcapping"] = f.real(arch+".final_logit_softcapping", 0, 1e6, 0)
	h["rope_local_base_freq"] = f.real(arch+".rope.freq_base_swa", 1, 1e15, DefaultRopeTheta)
	if v, ok := f.g.values[arch+".attention.sliding_window_pattern"]; ok && v.kind == kindArray {
		f.layerTypes(arch, h)
	} else if ok {
		h["sliding_window_pattern"] = f.count(arch+".attention.sliding_window_pattern", 1, maxLayers, 6)
	}
	f.queryScale(h, 62)
}

// queryScale sets query_pre_attn_scalar as llama.cpp does: the width of a head, and in the model
// with that many layers the hidden size by head.
func (f *ggufFields) queryScale(h hfConfig, largest int) {
	h["query_pre_attn_scalar"] = h["head_dim"]
	if f.err == nil && h["num_hidden_layers"] == largest {
		h["query_pre_attn_scalar"] = h["hidden_size"].(int) / h["num_attention_heads"].(int)
	}
}

// gemma4Config reads the text model of Gemma 4. Keys with _swa are those of layers with a window.
func gemma4Config(f *ggufFields, arch string, h hfConfig) {
	gemmaConfig(f, arch, h)
	h["sliding_window"] = f.count(arch+".attention.sliding_window", 1, maxPositions, -1)
	full := f.count(arch+".attention.key_length", 2, maxHeadDim, -1)
	h["global_head_dim"] = full
	h["head_dim"] = f.count(arch+".attention.key_length_swa", 2, maxHeadDim, -1)
	types := f.layerTypes(arch, h)
	heads := f.counts(arch+".attention.head_count_kv", 1, maxHeads, len(types))
	reuse := f.count(arch+".attention.shared_kv_layers", 0, maxLayers, 0)
	if f.err == nil && reuse >= len(types) {
		f.fail(arch+".attention.shared_kv_layers", "is %d of %d layers; some must have keys and values of their own", reuse, len(types))
	}
	if f.err != nil {
		return
	}
	f.wideLayers(arch, h, len(types)-reuse)
	delete(h, "num_key_value_heads")
	for i, t := range types {
		key := "num_key_value_heads"
		if t == "full_attention" {
			key = "num_global_key_value_heads"
			if _, ok := f.g.tensor(fmt.Sprintf("blk.%d.attn_v.weight", i)); !ok && i < len(types)-reuse {
				h["attention_k_eq_v"] = true
			}
		}
		if was, ok := h[key]; ok && was != heads[i] {
			f.fail(arch+".attention.head_count_kv", "differs between layers of one kind: layer %d has %d, another %d", i, heads[i], was)
		}
		h[key] = heads[i]
	}
	if _, ok := h["num_key_value_heads"]; !ok {
		h["num_key_value_heads"] = h["num_global_key_value_heads"]
	}
	h["hidden_size_per_layer_input"] = f.count(arch+".embedding_length_per_layer_input", 0, maxHidden, 0)
	h["vocab_size_per_layer_input"] = h["vocab_size"]
	if t, ok := f.g.tensor("per_layer_token_embd.weight"); ok {
		h["vocab_size_per_layer_input"] = t.Rows()
	}
	h["num_kv_shared_layers"] = reuse
	h["final_logit_softcapping"] = f.real(arch+".final_logit_softcapping", 0, 1e6, 0)
	if f.count(arch+".expert_count", 0, maxExperts, 0) > 0 {
		f.experts(arch, h)
		h["enable_moe_block"], h["top_k_experts"] = true, h["num_experts_per_tok"]
	}
	h["rope_parameters"] = map[string]any{
		"full_attention": map[string]any{
			"rope_type": "proportional", "rope_theta": f.real(arch+".rope.freq_base", 1, 1e15, 1e6),
			"partial_rotary_factor": f.rotatedPart(full),
		},
		"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": f.real(arch+".rope.freq_base_swa", 1, 1e15, DefaultRopeTheta)},
	}
}

// wideLayers checks the widths of MLPs that a file gives by layer: those of the layers from first on,
// which reuse keys and values, are all as wide as the others or all twice as wide.
func (f *ggufFields) wideLayers(arch string, h hfConfig, first int) {
	layers, _ := h["num_hidden_layers"].(int)
	key := arch + ".feed_forward_length"
	if v, ok := f.g.values[key]; !ok || v.kind != kindArray {
		return
	}
	widths := f.counts(key, 1, maxIntermediate, layers)
	for i, w := range widths {
		want := widths[0]
		if i >= first {
			want = widths[layers-1]
		}
		if w != want || want != widths[0] && want != 2*widths[0] {
			f.fail(key, "layer %d has %d, layer 0 %d; those from %d on, which reuse keys and values, may be twice as wide, the others not", i, w, widths[0], first)
		}
	}
}

// rotatedPart returns the part of a head of full layers that is rotated: rope_freqs has a factor of 1
// for its pairs, and one beyond all sense for the others.
func (f *ggufFields) rotatedPart(headDim int) float64 {
	factors := f.factors(ropeFreqs, headDim/2, math.MaxFloat32)
	if factors == nil {
		return 1
	}
	n := 0
	for n < len(factors) && factors[n] == 1 {
		n++
	}
	for _, x := range factors[n:] {
		if x < 1e29 {
			f.fail(ropeFreqs, "has the factor %v; those of Gemma 4 are 1, then 1e30", x)
		}
	}
	if n == 0 {
		f.fail(ropeFreqs, "rotates nothing: no factor is 1")
		return 1
	}
	return float64(2*n) / float64(headDim)
}

// markedLayers returns layer types by a list of booleans: that of marked layers, or full attention.
func markedLayers(v ggufValue, layers int, marked string) []string {
	types := make([]string, max(0, layers))
	for i := range types {
		types[i] = "full_attention"
		if v.raw[i] != 0 {
			types[i] = marked
		}
	}
	return types
}

// layerTypes reads which layers have a window, as booleans by layer.
func (f *ggufFields) layerTypes(arch string, h hfConfig) []string {
	layers, _ := h["num_hidden_layers"].(int)
	key := arch + ".attention.sliding_window_pattern"
	v, ok := f.g.values[key]
	if !ok || v.kind != kindArray || v.elem != kindBool || v.n != layers {
		f.fail(key, "is no list of %d booleans, one a layer", layers)
		return nil
	}
	types := markedLayers(v, layers, "sliding_attention")
	h["layer_types"] = types
	return types
}

// phi3Config reads Phi-3 and Phi-4. Long ropes are two tensors of factors.
func phi3Config(f *ggufFields, arch string, h hfConfig) {
	partialRope(f, arch, h)
	if w := f.count(arch+".attention.sliding_window", 0, maxPositions, 0); w > 0 {
		h["sliding_window"] = w
	}
	old := f.count(arch+".rope.scaling.original_context_length", 0, maxPositions, 0)
	if old > 0 {
		h["original_max_position_embeddings"] = old
	}
	const long, short = "rope_factors_long.weight", "rope_factors_short.weight"
	rotated := f.count(arch+".rope.dimension_count", 2, maxHeadDim, int64(max(2, h["head_dim"].(int))))
	l, s := f.factors(long, rotated/2, maxFactor), f.factors(short, rotated/2, maxFactor)
	if l == nil && s == nil {
		return
	}
	if l == nil || s == nil || old == 0 {
		f.fail(long, "comes without %s or %s.rope.scaling.original_context_length", short, arch)
		return
	}
	delete(h, "rope_scaling")
	scaling := map[string]any{"rope_type": "longrope", "long_factor": l, "short_factor": s, "original_max_position_embeddings": old}
	if x := f.real(arch+".rope.scaling.attn_factor", 0, maxFactor, 0); x > 0 {
		scaling["attention_factor"] = x
	}
	h["rope_scaling"] = scaling
}

// partialRope reads how much of a head is rotated.
func partialRope(f *ggufFields, arch string, h hfConfig) {
	head, _ := h["head_dim"].(int)
	if n := f.count(arch+".rope.dimension_count", 2, int64(max(2, head)), int64(max(2, head))); f.err == nil {
		h["partial_rotary_factor"] = float64(n) / float64(head)
	}
}

func graniteConfig(f *ggufFields, arch string, h hfConfig) {
	const least, most = 1e-6, 1e6
	if key := arch + ".rope.scaling.finetuned"; !f.flag(key, true) {
		f.fail(key, "is false: files of this architecture without a rope are not read; take the model's safetensors")
	}
	h["attention_multiplier"] = f.real(arch+".attention.scale", least, most, 1)
	h["embedding_multiplier"] = f.real(arch+".embedding_scale", least, most, 1)
	h["residual_multiplier"] = f.real(arch+".residual_scale", least, most, 1)
	h["logits_scaling"] = f.real(arch+".logit_scale", least, most, 1)
	if f.count(arch+".expert_count", 0, maxExperts, 0) > 0 {
		f.experts(arch, h)
	}
}

// olmo2Config reads OLMo 2, and OLMo 3, which has windows.
func olmo2Config(f *ggufFields, arch string, h hfConfig) {
	if w := f.count(arch+".attention.sliding_window", 0, maxPositions, 0); w > 0 {
		h["architectures"], h["model_type"], h["sliding_window"] = []string{"Olmo3ForCausalLM"}, "olmo3", w
		f.layerTypes(arch, h)
	}
}

// glm4MoEConfig reads GLM-4.5.
func glm4MoEConfig(f *ggufFields, arch string, h hfConfig) {
	partialRope(f, arch, h)
	f.groupedExperts(arch, h)
	_, h["use_qk_norm"] = f.g.tensor("blk.0.attn_q_norm.weight")
}

// groupedExperts reads experts as DeepSeek and GLM have them. Layers that predict further tokens come
// last and are not read.
func (f *ggufFields) groupedExperts(arch string, h hfConfig) {
	f.experts(arch, h)
	h["n_routed_experts"] = h["num_experts"]
	h["first_k_dense_replace"] = f.count(arch+".leading_dense_block_count", 0, maxLayers, 0)
	h["n_shared_experts"] = f.count(arch+".expert_shared_count", 0, maxExperts, 0)
	h["routed_scaling_factor"] = f.real(arch+".expert_weights_scale", 1e-6, 1e6, 1)
	h["norm_topk_prob"] = f.flag(arch+".expert_weights_norm", true)
	h["n_group"] = f.count(arch+".expert_group_count", 1, maxExperts, 1)
	h["topk_group"] = f.count(arch+".expert_group_used_count", 1, maxExperts, 1)
	h["num_nextn_predict_layers"] = 0
	if further := f.count(arch+".nextn_predict_layers", 0, maxLayers, 0); further > 0 && f.err == nil {
		h["num_hidden_layers"] = h["num_hidden_layers"].(int) - further
	}
}

// deepseekConfig reads DeepSeek V2 and, if its router has sigmoids, V3. Files of llama.cpp since April
// 2025 have the two parts of kv_b_proj apart; then key_length and value_length are those of the latent,
// and those of a head have names with _mla.
func deepseekConfig(f *ggufFields, arch string, h hfConfig) {
	f.groupedExperts(arch, h)
	softmax := f.count(arch+".expert_gating_func", 0, 2, 1) != 2
	if softmax {
		h["norm_topk_prob"] = f.flag(arch+".expert_weights_norm", false)
		h["topk_method"] = "greedy"
		if h["n_group"] != 1 {
			h["topk_method"] = "group_limited_greedy"
		}
	} else {
		h["architectures"], h["model_type"] = []string{"DeepseekV3ForCausalLM"}, "deepseek_v3"
		h["norm_topk_prob"] = f.flag(arch+".expert_weights_norm", false)
	}
	h["q_lora_rank"] = nil
	if n := f.count(arch+".attention.q_lora_rank", 0, maxHidden, 0); n > 0 {
		h["q_lora_rank"] = n
	}
	h["kv_lora_rank"] = f.count(arch+".attention.kv_lora_rank", 1, maxHeadDim, -1)
	rotary := f.count(arch+".rope.dimension_count", 2, maxHeadDim, -1)
	_, split := f.g.tensor("blk.0.attn_k_b.weight")
	suffix := ""
	if split {
		suffix = "_mla"
	}
	key := f.count(arch+".attention.key_length"+suffix, 2, maxHeadDim, -1)
	if f.err == nil && key <= rotary {
		f.fail(arch+".attention.key_length"+suffix, "is %d, of which %d are rotated; some are not", key, rotary)
	}
	h["qk_nope_head_dim"], h["qk_rope_head_dim"], h["head_dim"] = key-rotary, rotary, rotary
	h["v_head_dim"] = f.count(arch+".attention.value_length"+suffix, 1, maxHeadDim, -1)
	h["num_key_value_heads"], h["kv_b_split"] = h["num_attention_heads"], split
	// The converter multiplies mscale_all_dim by 0.1, and the other mscale has the same value.
	if scaling, ok := h["rope_scaling"].(map[string]any); ok {
		m := 10 * f.real(arch+".rope.scaling.yarn_log_multiplier", 0, 1e3, 0)
		scaling["mscale"], scaling["mscale_all_dim"] = m, m
	}
}

func cohereConfig(f *ggufFields, arch string, h hfConfig) {
	h["logit_scale"] = f.real(arch+".logit_scale", 1e-6, 1e6, 0.0625)
	_, h["use_qk_norm"] = f.g.tensor("blk.0.attn_q_norm.weight")
	if w := f.count(arch+".attention.sliding_window", 0, maxPositions, 0); w > 0 && arch == "cohere2" {
		h["sliding_window"] = w
	}
}

func ernieMoEConfig(f *ggufFields, arch string, h hfConfig) {
	f.experts(arch, h)
	h["moe_num_experts"], h["moe_k"] = h["num_experts"], h["num_experts_per_tok"]
	h["moe_layer_interval"] = f.count(arch+".interleave_moe_layer_step", 1, maxLayers, 1)
	h["moe_layer_start_index"] = f.count(arch+".leading_dense_block_count", 0, maxLayers, 1)
	h["moe_num_shared_experts"] = f.count(arch+".expert_shared_count", 0, maxExperts, 0)
}
