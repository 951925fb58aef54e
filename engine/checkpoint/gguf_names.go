package checkpoint

import "maps"

// ggufNames are the Hugging Face names of the parts of a layer.
var ggufNames = map[string]string{
	"attn_norm":   "input_layernorm",
	"attn_q":      "self_attn.q_proj",
	"attn_k":      "self_attn.k_proj",
	"attn_v":      "self_attn.v_proj",
	"attn_output": "self_attn.o_proj",
	"attn_q_norm": "self_attn.q_norm",
	"attn_k_norm": "self_attn.k_norm",
	"ffn_norm":    "post_attention_layernorm",
	"ffn_gate":    "mlp.gate_proj",
	"ffn_up":      "mlp.up_proj",
	"ffn_down":    "mlp.down_proj",
}

// The following maps have the names of a family that differ from ggufNames or have no suffix, or those
// that several families share. A key is the name of a part, or the whole name after the layer's number.
var (
	gptOssNames = map[string]string{
		"post_attention_norm.weight": "post_attention_layernorm.weight",
		"attn_sinks.weight":          "self_attn.sinks",
		"ffn_gate_inp.weight":        "mlp.router.weight",
		"ffn_gate_inp.bias":          "mlp.router.bias",
		"ffn_gate_exps.weight":       "mlp.experts.gate_proj",
		"ffn_gate_exps.bias":         "mlp.experts.gate_proj_bias",
		"ffn_up_exps.weight":         "mlp.experts.up_proj",
		"ffn_up_exps.bias":           "mlp.experts.up_proj_bias",
		"ffn_down_exps.weight":       "mlp.experts.down_proj",
		"ffn_down_exps.bias":         "mlp.experts.down_proj_bias",
	}
	mixtralNames = map[string]string{
		"ffn_gate_inp":         "block_sparse_moe.gate",
		"ffn_gate_exps.weight": "block_sparse_moe.experts.gate_proj",
		"ffn_up_exps.weight":   "block_sparse_moe.experts.up_proj",
		"ffn_down_exps.weight": "block_sparse_moe.experts.down_proj",
	}
	llama4Names = map[string]string{
		"ffn_gate":             "feed_forward.gate_proj",
		"ffn_up":               "feed_forward.up_proj",
		"ffn_down":             "feed_forward.down_proj",
		"ffn_gate_inp":         "feed_forward.router",
		"ffn_gate_exps.weight": "feed_forward.experts.gate_proj",
		"ffn_up_exps.weight":   "feed_forward.experts.up_proj",
		"ffn_down_exps.weight": "feed_forward.experts.down_proj",
		"ffn_gate_shexp":       "feed_forward.shared_expert.gate_proj",
		"ffn_up_shexp":         "feed_forward.shared_expert.up_proj",
		"ffn_down_shexp":       "feed_forward.shared_expert.down_proj",
	}
	graniteExpertNames = map[string]string{
		"ffn_gate_inp":         "block_sparse_moe.router.layer",
		"ffn_gate_exps.weight": "block_sparse_moe.experts.gate_proj",
		"ffn_up_exps.weight":   "block_sparse_moe.experts.up_proj",
		"ffn_down_exps.weight": "block_sparse_moe.experts.down_proj",
	}
	expertNames = map[string]string{
		"ffn_gate_inp":         "mlp.gate",
		"ffn_gate_exps.weight": "mlp.experts.gate_proj",
		"ffn_up_exps.weight":   "mlp.experts.up_proj",
		"ffn_down_exps.weight": "mlp.experts.down_proj",
	}
	qwenExpertNames = withNames(expertNames, map[string]string{
		"ffn_gate_inp_shexp": "mlp.shared_expert_gate",
		"ffn_gate_shexp":     "mlp.shared_expert.gate_proj",
		"ffn_up_shexp":       "mlp.shared_expert.up_proj",
		"ffn_down_shexp":     "mlp.shared_expert.down_proj",
	})
	// deltaNames are what qwen35Names and qwen3NextNames share.
	deltaNames = withNames(qwenExpertNames, map[string]string{
		"post_attention_norm": "post_attention_layernorm",
		"attn_qkv":            "linear_attn.in_proj_qkv",
		"attn_gate":           "linear_attn.in_proj_z",
		"ssm_conv1d":          "linear_attn.conv1d",
		"ssm_a":               "linear_attn.A_log",
		"ssm_dt.bias":         "linear_attn.dt_bias",
		"ssm_norm":            "linear_attn.norm",
		"ssm_out":             "linear_attn.out_proj",
	})
	qwen35Names = withNames(deltaNames, map[string]string{
		"ssm_alpha": "linear_attn.in_proj_a",
		"ssm_beta":  "linear_attn.in_proj_b",
	})
	// qwen3NextNames: both forms of in_proj_qkvz, and a and b in one matrix.
	qwen3NextNames = withNames(deltaNames, map[string]string{
		"ssm_in": "linear_attn.in_proj_qkvz",
		"ssm_ba": "linear_attn.in_proj_ba",
	})
	sharedExpertNames = withNames(expertNames, map[string]string{
		"ffn_gate_shexp": "mlp.shared_experts.gate_proj",
		"ffn_up_shexp":   "mlp.shared_experts.up_proj",
		"ffn_down_shexp": "mlp.shared_experts.down_proj",
	})
	glm4ExpertNames = withNames(sharedExpertNames, map[string]string{
		"post_attention_norm": "post_attention_layernorm",
		"exp_probs_b.bias":    "mlp.gate.e_score_correction_bias",
	})
	deepseekNames = withNames(sharedExpertNames, map[string]string{
		"attn_q_a":         "self_attn.q_a_proj",
		"attn_q_a_norm":    "self_attn.q_a_layernorm",
		"attn_q_b":         "self_attn.q_b_proj",
		"attn_kv_a_mqa":    "self_attn.kv_a_proj_with_mqa",
		"attn_kv_a_norm":   "self_attn.kv_a_layernorm",
		"attn_kv_b":        "self_attn.kv_b_proj",
		"attn_k_b":         "self_attn.k_b_proj",
		"attn_v_b":         "self_attn.v_b_proj",
		"exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
	})
	ernieExpertNames = withNames(sharedExpertNames, map[string]string{
		"exp_probs_b.bias": "mlp.moe_statics.e_score_correction_bias",
	})
	gemmaNames = map[string]string{
		"post_attention_norm": "post_attention_layernorm",
		"ffn_norm":            "pre_feedforward_layernorm",
		"post_ffw_norm":       "post_feedforward_layernorm",
	}
	gemma4Names = map[string]string{
		"post_attention_norm":       "post_attention_layernorm",
		"ffn_norm":                  "pre_feedforward_layernorm",
		"post_ffw_norm":             "post_feedforward_layernorm",
		"post_ffw_norm_1":           "post_feedforward_layernorm_1",
		"post_ffw_norm_2":           "post_feedforward_layernorm_2",
		"pre_ffw_norm_2":            "pre_feedforward_layernorm_2",
		"layer_output_scale.weight": "layer_scalar",
		"ffn_gate_inp":              "router.proj",
		"ffn_gate_inp.scale":        "router.scale",
		"ffn_down_exps.scale":       "router.per_expert_scale",
		"ffn_gate_up_exps.weight":   "experts.gate_up_proj",
		"ffn_down_exps.weight":      "experts.down_proj",
		"inp_gate":                  "per_layer_input_gate",
		"proj":                      "per_layer_projection",
		"post_norm":                 "post_per_layer_input_norm",
	}
	phi3Names = map[string]string{
		"attn_qkv": "self_attn.qkv_proj",
		"ffn_up":   "mlp.gate_up_proj",
	}
	olmo2Names = map[string]string{
		"post_attention_norm": "post_attention_layernorm",
		"post_ffw_norm":       "post_feedforward_layernorm",
	}
	glmNames  = map[string]string{"ffn_up": "mlp.gate_up_proj"}
	glm4Names = map[string]string{
		"ffn_up":              "mlp.gate_up_proj",
		"post_attention_norm": "post_self_attn_layernorm",
		"post_ffw_norm":       "post_mlp_layernorm",
	}
	hunyuanNames = map[string]string{
		"attn_q_norm": "self_attn.query_layernorm",
		"attn_k_norm": "self_attn.key_layernorm",
	}
)

// withNames returns the names of a and of b.
func withNames(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// ggufTop are the Hugging Face names of tensors that belong to no layer.
var ggufTop = map[string]string{
	"token_embd.weight":           "model.embed_tokens.weight",
	"output_norm.weight":          "model.norm.weight",
	"output.weight":               "lm_head.weight",
	"per_layer_token_embd.weight": "model.embed_tokens_per_layer.weight",
	"per_layer_model_proj.weight": "model.per_layer_model_projection.weight",
	"per_layer_proj_norm.weight":  "model.per_layer_projection_norm.weight",
}

// ropeFreqs is GGUF's tensor of rope factors; Config carries its values, as those of the other two.
const ropeFreqs = "rope_freqs.weight"

// readAlready reports tensors whose values Config carries, or that nothing needs.
func readAlready(name string) bool {
	switch name {
	case ropeFreqs, "rope_factors_long.weight", "rope_factors_short.weight":
		return true
	}
	return false
}
