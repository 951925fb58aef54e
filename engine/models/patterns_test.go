package models

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"vapp.dev/engine/checkpoint"
)

// TestConverts checks the skip lists of published checkpoints against the names of their modules.
func TestConverts(t *testing.T) {
	published := func(name string) json.RawMessage {
		c, ok, err := CatalogueConfig(name)
		if err != nil || !ok {
			t.Fatalf("%s: %v, %v", name, ok, err)
		}
		return c.QuantizationConfig
	}
	for _, c := range []struct {
		name      string
		config    json.RawMessage
		converted []string
		kept      []string
	}{
		{"gpt-oss", published("openai/gpt-oss-20b"),
			[]string{"model.layers.0.mlp.experts", "model.layers.23.mlp.experts.gate_up_proj"},
			[]string{"model.layers.0.self_attn.q_proj", "model.layers.23.self_attn.o_proj", "model.layers.7.mlp.router", "model.embed_tokens", "lm_head", "model.layers.3.self_attn"}},
		{"Qwen3.5", published("qwen3.5-27b-fp8"),
			[]string{"model.language_model.layers.0.linear_attn.in_proj_qkv", "model.language_model.layers.0.linear_attn.in_proj_z", "model.language_model.layers.3.self_attn.q_proj",
				"model.language_model.layers.0.mlp.gate_proj", "mtp.layers.0.self_attn.q_proj", "mtp.layers.0.mlp.down_proj"},
			[]string{"lm_head", "model.language_model.embed_tokens", "model.language_model.layers.0.linear_attn.conv1d", "model.language_model.layers.62.linear_attn.in_proj_a",
				"model.language_model.layers.0.linear_attn.in_proj_b", "model.visual.blocks.0.attn.qkv", "model.visual.merger.linear_fc1", "mtp.fc"}},
		{"Llama 3.1 405B, fbgemm", json.RawMessage(`{"quant_method":"fbgemm_fp8","activation_scale_ub":1200.0,"modules_to_not_convert":[
			"model.layers.0.mlp.down_proj","model.layers.0.mlp.gate_proj","model.layers.125.mlp.up_proj","lm_head","model.layers.1.self_attn.k_proj"]}`),
			[]string{"model.layers.1.mlp.down_proj", "model.layers.12.mlp.gate_proj", "model.layers.0.mlp.up_proj", "model.layers.1.self_attn.q_proj", "model.layers.10.mlp.down_proj", "model.layers.11.self_attn.k_proj"},
			[]string{"model.layers.0.mlp.down_proj", "model.layers.0.mlp.gate_proj", "model.layers.125.mlp.up_proj", "lm_head", "model.layers.1.self_attn.k_proj"}},
		{"neuralmagic, compressed-tensors", compressed("channel", `["lm_head"]`),
			[]string{"model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj"}, []string{"lm_head", "language_model.lm_head"}},
		{"compressed-tensors with expressions", compressed("tensor", `["re:.*lm_head","re:vision_tower.*","re:.*\\.mlp\\.gate$","model.layers.2"]`),
			[]string{"model.layers.0.mlp.gate_proj", "model.vision_tower.x", "model.layers.20.mlp.up_proj"},
			[]string{"lm_head", "model.lm_head", "vision_tower.blocks.0", "model.layers.5.mlp.gate", "model.layers.2.mlp.up_proj"}},
		{"AutoFP8", json.RawMessage(`{"quant_method":"fp8","activation_scheme":"static","ignored_layers":["lm_head","self_attn","visual.*","*.gate"]}`),
			[]string{"model.audiovisual.proj", "visual", "model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj", "model.layers.0.self_attn_x.up_proj"}, []string{"lm_head", "model.layers.0.self_attn.q_proj", "model.visual.proj", "visual.blocks.0.proj", "model.layers.0.mlp.gate"}},
		{"nothing named", json.RawMessage(`{"quant_method":"fp8","modules_to_not_convert":null}`), []string{"model.layers.0.mlp.up_proj", "a"}, nil},
	} {
		q, err := quantOf(checkpoint.Config{QuantizationConfig: c.config})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, m := range c.converted {
			if !q.converts(m) {
				t.Errorf("%s: %s is kept", c.name, m)
			}
		}
		for _, m := range c.kept {
			if q.converts(m) {
				t.Errorf("%s: %s is converted", c.name, m)
			}
		}
	}
	if (quant{}).converts("model.layers.0.mlp.up_proj") {
		t.Error("a checkpoint without quantization_config converts")
	}
}

// compressed returns a quantization_config as llm-compressor writes it.
func compressed(strategy, ignore string) json.RawMessage {
	return json.RawMessage(`{"quant_method":"compressed-tensors","format":"float-quantized","quantization_status":"compressed","kv_cache_scheme":null,"ignore":` + ignore + `,
		"config_groups":{"group_0":{"targets":["Linear"],"input_activations":{"dynamic":true,"num_bits":8,"strategy":"token","type":"float"},"output_activations":null,
		"weights":{"actorder":null,"block_structure":null,"dynamic":false,"group_size":null,"num_bits":8,"observer":"minmax","strategy":"` + strategy + `","symmetric":true,"type":"float"}}}}`)
}

// TestQuantRefusals checks that unsupported quantizations are refused by name.
func TestQuantRefusals(t *testing.T) {
	many := `"` + strings.Repeat(`a*","`, 1100) + `b"`
	for _, c := range []struct{ config, want string }{
		{`{"quant_method":"awq","bits":4,"group_size":128,"version":"gemv","zero_point":true}`, `awq of version "gemv"`},
		{`{"quant_method":"gptq","bits":5}`, `gptq with bits 5`},
		{`{"quant_method":"eetq"}`, `"eetq"`}, {`{"quant_method":"hqq"}`, `"hqq"`}, {`{"quant_method":"exl2"}`, `"exl2"`},
		{`{"quant_method":"bitsandbytes","load_in_4bit":true}`, `"bitsandbytes"`},
		{`{"quant_method":"quark"}`, `"quark"`},
		{`{"quant_method":"modelopt","quant_algo":"NVFP4_AWQ"}`, `"NVFP4_AWQ"`},
		{`{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int","strategy":"group"}}}}`, `group_size null`},
		{`{}`, `""`}, {`[]`, "known shape"}, {`7`, "known shape"}, {`{"quant_method":7}`, "known shape"},
		{`{"quant_method":"fp8","weight_block_size":[64,64]}`, "128 by 128"},
		{`{"quant_method":"fp8","weight_block_size":[128]}`, "128 by 128"},
		{`{"quant_method":"fp8","fmt":"e5m2"}`, `"e5m2"`},
		{`{"quant_method":"fp8","modules_to_not_convert":"lm_head"}`, "known shape"},
		{`{"quant_method":"fp8","modules_to_not_convert":[` + many + `]}`, "at most 2048 bytes"},
		{`{"quant_method":"fp8","modules_to_not_convert":["` + strings.Repeat("*", 3000) + `"]}`, "at most 2048 bytes"},
		{`{"quant_method":"fp8","ignored_layers":["re:(?!lm_head).*"]}`, "regular expression is not valid"},
		{string(compressed("token", `[]`)), `strategy "token"`}, {string(compressed("group", `[]`)), `strategy "group"`},
		{strings.Replace(string(compressed("tensor", `[]`)), `"type":"float"}}`, `"type":"int"}}`, 1), `format "float-quantized"`},
		{strings.Replace(string(compressed("tensor", `[]`)), `"Linear"`, `"re:.*mlp.*"`, 1), "targets"},
		{strings.Replace(string(compressed("tensor", `[]`)), `"config_groups"`, `"sparsity_config":{"format":"sparse-24-bitmask"},"config_groups"`, 1), "sparse-24-bitmask"},
		{`{"quant_method":"compressed-tensors","config_groups":{}}`, "0 config_groups"},
		{`{"quant_method":"compressed-tensors","config_groups":{"a":{"targets":["Linear"]}}}`, "without weights"},
	} {
		checkQuantRefused(t, json.RawMessage(c.config), c.want)
	}
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "a", true}, {"a", "ab", false}, {"*", "", true}, {"*", "abc", true}, {"a*", "abc", true}, {"*c", "abc", true},
		{"*b", "abc", false}, {"a*c", "abc", true}, {"a*c", "acbc", true}, {"a*b*c", "aXbYbZc", true}, {"a*b*c", "aXcYb", false}, {"**", "a", true},
		{"*ab", "aab", true}, {"*aab", "aaab", true}, {"a**", "a", true}, {"abc", "ab", false}, {"*.x.*", "a.x.b", true}, {"*.x.*", "a.xy.b", false},
	} {
		if got := glob(c.pattern, c.s); got != c.want {
			t.Errorf("%q on %q: %t", c.pattern, c.s, got)
		}
	}
}

// TestPatternsAreBounded matches names against the longest supported lists.
func TestPatternsAreBounded(t *testing.T) {
	var list []string
	for i := range 9 {
		list = append(list, strings.Repeat("*a", 100)+fmt.Sprint(i))
	}
	for i := range 200_000 {
		list = append(list, fmt.Sprintf("model.layers.%d.mlp", i))
	}
	p, err := patternsOf(list)
	if err != nil {
		t.Fatal(err)
	}
	if p.match("model.layers.0.mlp_"+strings.Repeat("a", 60)) || p.match("model.layers.0.mlpx.up") || !p.match("model.layers.199999.mlp.up") {
		t.Error("a name of a long list is not itself")
	}
}

// FuzzQuantization reads any quantization_config: an error must be short and typed, and a valid one
// must match any module name.
func FuzzQuantization(f *testing.F) {
	for _, q := range quantizations {
		if c, ok := q.config["quantization_config"].(json.RawMessage); ok {
			f.Add([]byte(c), "model.layers.0.mlp.down_proj")
		}
	}
	f.Add([]byte(compressed("tensor", `["re:.*lm_head","*.gate","visual.*"]`)), "lm_head")
	for _, c := range int8Configs {
		f.Add([]byte(c.config), "lm_head")
	}
	f.Add([]byte(`{"quant_method":"mxfp4","modules_to_not_convert":["model.layers.*.self_attn"]}`), "model.layers.1.self_attn.q_proj")
	f.Fuzz(func(t *testing.T, config []byte, module string) {
		q, err := quantOf(checkpoint.Config{QuantizationConfig: config})
		if err != nil {
			if !isTyped(err) || len(err.Error()) > 4096 || strings.Contains(err.Error(), "\n") {
				t.Errorf("%T of %d bytes: %v", err, len(err.Error()), err)
			}
			return
		}
		q.converts(module)
	})
}
