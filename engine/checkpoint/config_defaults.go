package checkpoint

import "encoding/json"

// modelDefaults has transformers' defaults, by model_type, of keys that published configs leave out.
var modelDefaults = map[string]string{
	"gemma3_text": `{"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
		"num_key_value_heads": 4, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131072,
		"rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "sliding_window": 4096, "eos_token_id": 1, "bos_token_id": 2}`,
}

// useDefaults lets reads of keys that the config leaves out return its model_type's defaults.
func (f *fields) useDefaults() {
	if v, ok := modelDefaults[f.text("model_type", "")]; ok {
		_ = json.Unmarshal([]byte(v), &f.absent)
	}
}
