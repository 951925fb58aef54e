package compat

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// TestRefusals checks that invalid inputs give an *Error with the field.
func TestRefusals(t *testing.T) {
	gemma, oss, qwen, llama1, deepseek := "gemma-4-26B-A4B bf16 eager", "gpt-oss-20b mxfp4", "Qwen3.5-27B-FP8 TP=2 MTP", "Llama-3.2-1B", "DeepSeek-R1-Distill-Qwen-7B fp16"
	for _, c := range []struct {
		run, field, says string
		change           func(*Inputs)
	}{
		{gemma, "compat", "did you mean vllm-0.17", func(i *Inputs) { i.Release = "vllm-0.16" }},
		{gemma, "compat", "vllm-0.19 is the first", func(i *Inputs) { i.Release = V07 }},
		{llama1, "compat", "linear-attention", func(i *Inputs) { i.Release = V017PullA }},
		{gemma, "parallel.tensor", "3 does not divide num_attention_heads 16", func(i *Inputs) { i.Request.TensorParallel = 3 }},
		{deepseek, "parallel.tensor", "7 and 4", func(i *Inputs) {
			i.Request.TensorParallel = 7
			i.Config.VocabSize = 448
			i.Config.IntermediateSize = 7 * 64
		}},
		{qwen, "parallel.tensor", "blocks of 128 x 128", func(i *Inputs) { i.Config.IntermediateSize = 17344 }},
		{gemma, "parallel.pipeline", "30 layers", func(i *Inputs) { i.Request.PipelineParallel = 31 }},
		{oss, "memory.kvCacheDtype", "compute capability 8.9", func(i *Inputs) { i.Request.KVCacheDtype = "fp8" }},
		{oss, "memory.kvCacheDtype", "sinks", func(i *Inputs) { i.Request.KVCacheDtype = "fp8"; i.Device.Minor = 9 }},
		{oss, "memory.kvCacheDtype", "int4", func(i *Inputs) { i.Request.KVCacheDtype = "int4" }},
		{qwen, "memory.kvCacheDtype", "fp8_e5m2", func(i *Inputs) { i.Request.KVCacheDtype = "fp8_e5m2" }},
		{gemma, "cudagraph.captureSizes", "4096 is not in 1 to", func(i *Inputs) { i.Request.Cudagraph = Cudagraph{Sizes: []int{1, 4096}} }},
		{gemma, "cudagraph.mode", "no mode", func(i *Inputs) { i.Request.Cudagraph = Cudagraph{Mode: "some"} }},
		{llama1, "cudagraph.mode", "full_and_piecewise", func(i *Inputs) { i.Request.Cudagraph.Mode = "full_and_piecewise" }},
		{gemma, "memory.blockSize", "multiple of 16", func(i *Inputs) { i.Request.BlockSize = 24 }},
		{deepseek, "memory.blockSize", "[8 16 32]", func(i *Inputs) { i.Request.BlockSize = 64 }},
		{gemma, "memory.utilization", "1.5", func(i *Inputs) { i.Request.Utilization = 1.5 }},
		{gemma, "maxModelLen", "262144 positions", func(i *Inputs) { i.Request.MaxModelLen = 262145 }},
		{llama1, "maxModelLen", "automatic", func(i *Inputs) { i.Request.MaxModelLen = -1 }},
		{deepseek, "model.dtype", "take float16", func(i *Inputs) { i.Request.Dtype = "bfloat16" }},
		{gemma, "model.dtype", "int8", func(i *Inputs) { i.Request.Dtype = "int8" }},
		{qwen, "quantization", "the checkpoint has fp8", func(i *Inputs) { i.Request.Quantization = "mxfp4" }},
		{gemma, "quantization", "awq", func(i *Inputs) { i.Request.Quantization = "awq" }},
		{deepseek, "quantization", "needs compute capability 8.0", func(i *Inputs) { i.Request.Quantization = "fp8" }},
		{gemma, "speculative.method", "no MTP head", func(i *Inputs) { i.Request.Speculative = Speculative{"mtp", 1} }},
		{qwen, "speculative.method", "eagle", func(i *Inputs) { i.Request.Speculative.Method = "eagle" }},
		{qwen, "speculative.numTokens", "is missing", func(i *Inputs) { i.Request.Speculative.Tokens = 0 }},
		{qwen, "memory.hybridKVCacheManager", "states", func(i *Inputs) { i.Request.NoHybridManager = true }},
		{gemma, "memory.kvCacheDtype", "refuses to unify", func(i *Inputs) { i.Config.Raw = edit(i.Config.Raw, `"global_head_dim":512`, `"global_head_dim":384`) }},
		{gemma, "config.text_config.layer_types", "linear_attention", func(i *Inputs) { i.Config.LayerTypes[3] = "linear_attention" }},
		{gemma, "config.text_config.num_experts", "is missing", func(i *Inputs) { i.Config.Raw = edit(i.Config.Raw, `"num_experts":128`, `"n":1`) }},
		{gemma, "config.architectures", "BertModel", func(i *Inputs) { i.Config.Architecture = "BertModel" }},
		{qwen, "config.quantization_config.config_groups", "has integer weights (W8A8, W8A16)", func(i *Inputs) {
			i.Config.QuantizationConfig = json.RawMessage(`{"quant_method":"compressed-tensors","config_groups":{"group_0":{"weights":{"num_bits":8,"type":"int","strategy":"channel"}}}}`)
		}},
		{qwen, "config.quantization_config.quant_method", "bitsandbytes", func(i *Inputs) { i.Config.QuantizationConfig = json.RawMessage(`{"quant_method":"bitsandbytes"}`) }},
		{qwen, "config.quantization_config.bits", "allowed are 4 and 8", func(i *Inputs) {
			i.Config.QuantizationConfig = json.RawMessage(`{"quant_method":"gptq","bits":3,"group_size":128}`)
		}},
		{qwen, "config.quantization_config.group_size", "allowed are", func(i *Inputs) {
			i.Config.QuantizationConfig = json.RawMessage(`{"quant_method":"awq","bits":4,"group_size":0}`)
		}},
		{qwen, "quantization", "vllm-0.19 is the first", func(i *Inputs) {
			i.Config.QuantizationConfig = json.RawMessage(`{"quant_method":"awq","bits":4,"group_size":128}`)
		}},
		{gemma, "scheduler.maxNumBatchedTokens", "below maxModelLen", func(i *Inputs) { i.Request.ChunkedPrefill, i.Request.MaxNumBatchedTokens = "off", 2048 }},
		{gemma, "scheduler.maxNumBatchedTokens", "below maxNumSeqs", func(i *Inputs) { i.Request.MaxNumSeqs, i.Request.MaxNumBatchedTokens = 64, 32 }},
		{gemma, "device", "no NVIDIA GPU", func(i *Inputs) { i.Device.SMs = 0 }},
		{deepseek, "device", "12.0", func(i *Inputs) { i.Device.Major = 12 }},
		{llama1, "device", "falls back", func(i *Inputs) { i.Device.Major, i.Device.Minor = 7, 5 }},
	} {
		i := run9(t, c.run).inputs(t)
		c.change(&i)
		r, err := Make(i)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s, %s %s: %v\n%v", c.run, c.field, c.says, err, r)
			continue
		}
		if e.Field != c.field || !strings.Contains(e.Msg, c.says) || strings.Contains(e.Error(), "\n") {
			t.Errorf("%v: want field %s and %q", e, c.field, c.says)
		}
	}
}

// edit replaces a part of a config.json, whatever its white space.
func edit(raw json.RawMessage, from, to string) json.RawMessage {
	var v map[string]any
	if json.Unmarshal(raw, &v) != nil {
		panic("no JSON")
	}
	data, err := json.Marshal(v)
	if err != nil || !strings.Contains(string(data), from) {
		panic("no " + from)
	}
	return json.RawMessage(strings.Replace(string(data), from, to, 1))
}

// TestParseRelease checks the names of releases, and suggestions for unknown names.
func TestParseRelease(t *testing.T) {
	for _, r := range Releases() {
		if got, err := ParseRelease(string(r)); got != r || err != nil {
			t.Errorf("%v: %v, %v", r, got, err)
		}
	}
	for in, near := range map[string]string{
		"vllm-0.18": "vllm-0.17 or vllm-0.19", "0.7": "vllm-0.7", "vllm": "did you mean vllm-0.33?", "vllm-2025": "vllm-2025-08", "VLLM-0.19": "vllm-0.19", "vllm-0.17-pr": "vllm-0.17-pr-a", strings.Repeat("x", 1<<20): "vllm",
	} {
		_, err := ParseRelease(in)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Msg, near) || len(e.Msg) > 300 {
			t.Errorf("%.20s: %v, want %s", in, err, near)
		}
	}
}
