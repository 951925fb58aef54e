package checkpoint

import "encoding/json"

// modelDefaults has transformers' defaults (5.23), by model_type, of keys that configs may leave out
// and whose value here would be another: ropes, windows and the width of a head.
var modelDefaults = map[string]string{
	"cohere":       `{"rope_theta": 500000.0}`,
	"cohere2":      `{"sliding_window": 4096}`,
	"deepseek_v2":  `{"q_lora_rank": 1536, "n_shared_experts": 2}`,
	"deepseek_v3":  deepseekV3,
	"ernie4_5":     `{"rope_theta": 500000.0, "head_dim": 128}`,
	"ernie4_5_moe": `{"rope_theta": 500000.0}`,
	"gemma":        `{"head_dim": 256}`,
	"gemma2":       `{"head_dim": 256, "sliding_window": 4096}`,
	"glm":          `{"head_dim": 128, "partial_rotary_factor": 0.5}`,
	"glm4":         `{"head_dim": 128, "partial_rotary_factor": 0.5}`,
	"glm4_moe":     `{"partial_rotary_factor": 0.5}`,
	"gpt_oss":      `{"rope_theta": 150000.0, "head_dim": 64, "sliding_window": 128}`,
	"llama4_text":  `{"rope_theta": 500000.0, "head_dim": 128}`,
	"ministral":    `{"sliding_window": 4096}`,
	"mistral":      `{"sliding_window": 4096}`,
	"mixtral":      `{"rope_theta": 1000000.0}`,
	"olmo3":        `{"rope_theta": 500000.0, "sliding_window": 4096}`,
	"kimi_k2":      deepseekV3,
	"qwen3":        `{"head_dim": 128}`,
	"smollm3":      `{"rope_theta": 2000000.0}`,
	"gemma3_text": `{"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
		"num_key_value_heads": 4, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131072,
		"rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "sliding_window": 4096, "eos_token_id": 1, "bos_token_id": 2}`,
}

const deepseekV3 = `{"q_lora_rank": 1536, "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3, "routed_scaling_factor": 2.5}`

// useDefaults lets reads of keys that the config leaves out return its model_type's defaults.
func (f *fields) useDefaults() {
	if v, ok := modelDefaults[f.text("model_type", "")]; ok {
		_ = json.Unmarshal([]byte(v), &f.absent)
	}
}
