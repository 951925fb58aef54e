package models

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
)

// TestMixtures records published configs with experts whole and in parts, and plans them on all
// layouts.
func TestMixtures(t *testing.T) {
	for _, name := range []string{"qwen3-30b-a3b", "qwen3-30b-a3b-fp8", "mixtral-8x7b-v0.1", "Qwen3-Next-80B-A3B-Instruct", "GLM-4.5-Air", "GLM-4.6", "Llama-4-Maverick-17B-128E", "DeepSeek-V2-Lite", "OLMoE-1B-7B-0924"} {
		for _, world := range []int{1, 2} {
			for _, pipe := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s/tp%d-pp%d", name, world, pipe), func(t *testing.T) {
					checkBuilt(t, name, Build{Shard: backend.Shard{Rank: world - 1, World: world}, Pipe: backend.Shard{Rank: pipe - 1, World: pipe}})
				})
			}
		}
	}
}

// TestMixtureRefusals checks that configs which the families do not run are refused by field.
func TestMixtureRefusals(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"tiny-qwen3-moe", `"num_experts": 12`, `"num_experts": 2`, "3 experts a token"},
		{"tiny-qwen3-moe", `"num_experts": 12`, `"num_experts": 0`, "a mixture without experts"},
		{"tiny-qwen3-moe", `"mlp_only_layers": []`, `"mlp_only_layers": [7]`, "mlp_only_layers"},
		{"tiny-qwen3-moe", `"decoder_sparse_step": 1`, `"decoder_sparse_step": 0`, "decoder_sparse_step"},
		{"tiny-qwen3-moe", `"hidden_act": "silu"`, `"hidden_act": "relu2"`, "hidden_act"},
		{"tiny-qwen2-moe", `"intermediate_size": 96`, `"intermediate_size": null`, "layer 1 of Qwen2MoeForCausalLM without experts"},
		{"tiny-qwen2-moe", `"shared_expert_intermediate_size": 40`, `"other": 40`, "shared_expert_intermediate_size"},
		{"tiny-glm4-moe", `"n_group": 3`, `"n_group": 5`, "n_group 5 with topk_group 2"},
		{"tiny-glm4-moe", `"topk_group": 2`, `"topk_group": 4`, "n_group 3 with topk_group 4"},
		{"tiny-deepseek-v2", `"topk_method": "group_limited_greedy"`, `"topk_method": "noaux_tc"`, "topk_method noaux_tc"},
		{"tiny-deepseek-v2", `"scoring_func": "softmax"`, `"scoring_func": "sigmoid"`, "scoring_func sigmoid"},
		{"tiny-deepseek-v2", `"norm_topk_prob": false`, `"norm_topk_prob": true`, "norm_topk_prob"},
		{"tiny-deepseek-v2", `"attention_bias": false`, `"attention_bias": true`, "attention_bias"},
		{"tiny-deepseek-v2", `"n_group": 3`, `"n_group": 2`, "n_group 2 with topk_group 2"},
		{"tiny-deepseek-v2", `"kv_lora_rank": 32`, `"kv_lora_rank": null`, "kv_lora_rank"},
		{"tiny-deepseek-v2", `"qk_rope_head_dim": 16`, `"qk_rope_head_dim": 0`, "qk_rope_head_dim"},
		{"tiny-deepseek-v2", `"n_group": 3`, `"n_group": 0`, "n_group"},
		{"tiny-deepseek-v2", `"moe_layer_freq": 1`, `"moe_layer_freq": 0`, "moe_layer_freq"},
		{"tiny-deepseek-v2", `"intermediate_size": 48`, `"intermediate_size": null`, "layer 0 of DeepseekV2ForCausalLM without experts"},
		{"tiny-deepseek-v3", `"topk_method": "noaux_tc"`, `"topk_method": "greedy"`, "topk_method greedy"},
		{"tiny-deepseek-v3", `"scoring_func": "sigmoid"`, `"scoring_func": "softmax"`, "scoring_func softmax"},
		{"tiny-deepseek-v3", `"hidden_act": "silu"`, `"hidden_act": "relu2"`, "hidden_act"},
		{"tiny-ernie-moe", `"moe_gate": "topk"`, `"moe_gate": "hash"`, `moe_gate "hash"`},
		{"tiny-qwen3-next", `"intermediate_size": 48`, `"intermediate_size": null`, "layer 1 of Qwen3NextForCausalLM without experts"},
		{"tiny-qwen3-next", `"linear_num_value_heads": 4`, `"linear_num_value_heads": 5`, "linear_num_value_heads 5"},
		{"tiny-qwen3-next", `"hidden_act": "silu"`, `"hidden_act": "gelu_tanh"`, "hidden_act gelu_tanh"},
		{"tiny-ernie-moe", `"use_bias": false`, `"use_bias": true`, "use_bias"},
		{"tiny-olmoe", `"clip_qkv": null`, `"clip_qkv": 8.0`, "clip_qkv"},
		{"tiny-llama4", `"num_experts_per_tok": 1`, `"num_experts_per_tok": 2`, "num_experts_per_tok 2"},
		{"tiny-llama4", `"attention_chunk_size": 32`, `"attention_chunk_size": null`, "layer_types with chunked_attention"},
		{"tiny-llama4", `"attention_chunk_size": 32`, `"attention_chunk_size": 0`, "attention_chunk_size"},
		{"tiny-llama4", `"no_rope_layers": [`, `"layer_types": ["sliding_attention", "full_attention", "full_attention"], "no_rope_layers": [`, `layer_types[0] "sliding_attention"`},
		{"tiny-llama4", `"num_hidden_layers": 3`, `"num_hidden_layers": 4`, "no_rope_layers of 3 layers"},
		{"tiny-llama4", `"floor_scale": 8`, `"floor_scale": 0`, "floor_scale"},
		{"tiny-llama4", `"rope_theta": 500000.0`, `"rope_theta": 500000.0, "partial_rotary_factor": 0.5`, "rotates part of a head"},
	} {
		data, err := os.ReadFile("testdata/" + c.name + "/config.json")
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(data), c.from, c.to, 1)
		if text == string(data) {
			t.Fatalf("%s: no %s in %s", c.name, c.from, data)
		}
		cfg, err := checkpoint.ParseConfig("config.json", []byte(text))
		if err == nil {
			_, err = Tensors(cfg)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: %v, want %q", c.name, c.to, err, c.want)
		}
	}
}

// TestMixtureRanks checks that a rank has its columns of every expert, and that widths which ranks
// cannot share are refused.
func TestMixtureRanks(t *testing.T) {
	specs := rankWeights(t, "tiny-qwen2-moe")
	for name, want := range map[string][2]int{
		"layers.0.gate_up": {24, 64}, "layers.0.down": {64, 12}, "layers.0.shared_gate_up": {40, 64}, "layers.0.shared_gate": {1, 64}, "layers.1.gate_up": {96, 64},
	} {
		if got := [2]int{specs[name].Rows, specs[name].Cols}; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	_, err := New(openTestdata(t, "tiny-qwen2-moe"), Build{Shard: backend.Shard{World: 16}})
	var bad *UnsupportedError
	if !errors.As(err, &bad) {
		t.Errorf("16 ranks: %v", err)
	}
}
