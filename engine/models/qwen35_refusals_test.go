package models

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"vapp.dev/engine/checkpoint"
)

// alterTextConfig returns the published config with other values in its text_config.
func alterTextConfig(t testing.TB, change map[string]any) checkpoint.Config {
	t.Helper()
	return alterNested(t, "text_config", change)
}

// alterNested returns the published config with other values in a nested object.
func alterNested(t testing.TB, key string, change map[string]any) checkpoint.Config {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(alterConfig(t, qwen27, nil).Raw, &m); err != nil {
		t.Fatal(err)
	}
	maps.Copy(m[key].(map[string]any), change)
	return alterConfig(t, qwen27, m)
}

// TestQwen35Refusals checks that unsupported configs and builds are refused.
func TestQwen35Refusals(t *testing.T) {
	for want, change := range map[string]map[string]any{
		"layer_types \"sliding\" of layer 0": {"layer_types": append([]string{"sliding"}, everyNthFull(63, 4, linearAttention)...)},
		"layer_types of linear_attention":    {"layer_types": everyNthFull(64, 65, linearAttention)},
		"hidden_act relu":                    {"hidden_act": "relu"},
		"with experts":                       {"num_experts": 4},
		"attention_bias":                     {"attention_bias": true},
		"attn_output_gate":                   {"attn_output_gate": false},
		"mamba_ssm_dtype":                    {"mamba_ssm_dtype": "bfloat16"},
		"linear_num_value_heads 40":          {"linear_num_value_heads": 40},
		"linear_conv_kernel_dim":             {"linear_conv_kernel_dim": 1},
		"linear_key_head_dim":                {"linear_key_head_dim": 1 << 40},
		"linear_num_key_heads":               {"linear_num_key_heads": -16},
		"mtp_num_hidden_layers":              {"mtp_num_hidden_layers": "one"},
		"full_attention_interval":            {"full_attention_interval": 0, "layer_types": nil},
		"partial_rotary_factor":              {"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.012}},
		"out_hidden_size 5120":               {"hidden_size": 6144},
	} {
		_, err := Tensors(alterTextConfig(t, change))
		expectRefusal(t, want, err)
	}
	for want, change := range map[string]map[string]any{
		"num_position_embeddings 2305": {"num_position_embeddings": 2305},
		"with 15 heads":                {"num_heads": 15},
		"hidden_act relu":              {"hidden_act": "relu"},
		"vision_config.depth":          {"depth": 1 << 20},
	} {
		_, err := Tensors(alterNested(t, "vision_config", change))
		expectRefusal(t, want, err)
	}
	for want, c := range map[string]struct {
		change map[string]any
		build  Build
	}{
		"divide 24 attention heads":    {nil, draftBuild(0, 5, 0)},
		"divide 12 key heads":          {map[string]any{"linear_num_key_heads": 12}, draftBuild(0, 8, 0)},
		"33 proposed tokens":           {nil, Build{Draft: 33}},
		"-1 proposed tokens":           {nil, Build{Draft: -1}},
		"40 verified":                  {nil, Build{Verify: 40}},
		"no mtp_num_hidden_layers":     {map[string]any{"mtp_num_hidden_layers": 0}, Build{Draft: 1}},
		"mtp_num_hidden_layers 2":      {map[string]any{"mtp_num_hidden_layers": 2}, Build{Draft: 1}},
		"mtp_use_dedicated_embeddings": {map[string]any{"mtp_use_dedicated_embeddings": true}, Build{Draft: 1}},
		"no whole blocks of 128":       {map[string]any{"intermediate_size": 128 * 17}, draftBuild(0, 2, 0)},
	} {
		_, err := buildModel(alterTextConfig(t, c.change), c.build)
		expectRefusal(t, want, err)
	}
}

func expectRefusal(t *testing.T, want string, err error) {
	t.Helper()
	var refused *UnsupportedError
	var bad *checkpoint.Error
	if !errors.As(err, &refused) && !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want a refusal with %q", err, want)
	}
}
