package models_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/enginetest"
	"vapp.dev/kernels"
)

const qwen3Next = "tiny-qwen3-next"

// nextTensors returns the tensors of tiny-qwen3-next with experts in every layer, as its GGUF files have,
// and A_log of numbers that survive −exp(A_log).
func nextTensors(t *testing.T) []enginetest.Tensor {
	t.Helper()
	var out []enginetest.Tensor
	for _, x := range storedTensors(t, qwen3Next) {
		switch rest, first := strings.CutPrefix(x.Name, "model.layers.0.mlp."); {
		case strings.HasPrefix(x.Name, "mtp.") || strings.HasPrefix(x.Name, "model.layers.1.mlp."):
			continue
		case first:
			again := x
			again.Name = "model.layers.1.mlp." + rest
			out = append(out, again)
		case strings.HasSuffix(x.Name, "A_log"):
			numbers := widen(x)
			for i := range numbers {
				for was := float32(math.NaN()); was != numbers[i]; {
					was, numbers[i] = numbers[i], float32(math.Log(float64(float32(math.Exp(float64(numbers[i]))))))
				}
			}
			x.Format, x.Data = kernels.F32, narrow(kernels.F32, numbers)
		}
		out = append(out, x)
	}
	return out
}

// nextParts are llama.cpp's names of the parts of a layer.
var nextParts = map[string]string{
	"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
	"self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
	"linear_attn.in_proj_qkvz": "ssm_in", "linear_attn.in_proj_ba": "ssm_ba", "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm",
	"linear_attn.out_proj": "ssm_out", "mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
	"mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
}

// nextGGUF writes tensors as llama.cpp's converter does; split takes in_proj_qkvz apart.
func nextGGUF(t *testing.T, list []enginetest.Tensor, split bool) string {
	t.Helper()
	const a = "qwen3next."
	stacks := map[string]*enginetest.Tensor{}
	var out []enginetest.Tensor
	for _, x := range list {
		_, layer, inside := strings.Cut(x.Name, "model.layers.")
		n, part, _ := strings.Cut(strings.TrimSuffix(layer, ".weight"), ".")
		blk := "blk." + n + "."
		if strings.HasSuffix(x.Name, "norm.weight") && part != "linear_attn.norm" {
			numbers := widen(x)
			for i := range numbers {
				numbers[i]++
			}
			x.Format, x.Data = kernels.F32, narrow(kernels.F32, numbers)
		}
		if _, expert, ok := strings.Cut(part, "mlp.experts."); ok {
			_, matrix, _ := strings.Cut(expert, ".")
			name := blk + "ffn_" + strings.TrimSuffix(matrix, "_proj") + "_exps.weight"
			if stacks[name] == nil {
				stacks[name] = &enginetest.Tensor{Name: name, Shape: append([]int64{0}, x.Shape...), Format: x.Format}
			}
			stacks[name].Shape[0]++
			stacks[name].Data = append(stacks[name].Data, x.Data...)
			continue
		}
		switch {
		case !inside:
			x.Name = map[string]string{"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}[x.Name]
		case part == "linear_attn.in_proj_qkvz" && split:
			qkv, z := splitQKVZ(x)
			qkv.Name, z.Name = blk+"attn_qkv.weight", blk+"attn_gate.weight"
			out, x = append(out, qkv), z
		case part == "linear_attn.A_log":
			numbers := widen(x)
			for i, v := range numbers {
				numbers[i] = -float32(math.Exp(float64(v)))
			}
			x.Name, x.Data = blk+"ssm_a", narrow(kernels.F32, numbers)
		case part == "linear_attn.dt_bias":
			x.Name = blk + "ssm_dt.bias"
		default:
			x.Name = blk + nextParts[part] + ".weight"
		}
		x.Shape = slices.DeleteFunc(slices.Clone(x.Shape), func(n int64) bool { return n == 1 }) // conv1d, and the gate of shared experts
		out = append(out, x)
	}
	for _, s := range stacks {
		out = append(out, *s)
	}
	tokens, types := make([]string, 264), make([]int32, 264)
	for i := range tokens {
		tokens[i], types[i] = fmt.Sprintf("t%d", i), 1
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	must(t, enginetest.WriteGGUFTensors(path, map[string]any{
		"general.architecture": "qwen3next", a + "block_count": 3, a + "context_length": 1024, a + "embedding_length": 64, a + "attention.head_count": 4,
		a + "attention.head_count_kv": 2, a + "attention.key_length": 16, a + "attention.value_length": 16, a + "attention.layer_norm_rms_epsilon": 1e-6,
		a + "rope.freq_base": 1e7, a + "rope.dimension_count": 4, a + "full_attention_interval": 2, a + "expert_count": 4, a + "expert_used_count": 2,
		a + "expert_feed_forward_length": 16, a + "expert_shared_feed_forward_length": 24, a + "ssm.conv_kernel": 4, a + "ssm.state_size": 16,
		a + "ssm.group_count": 2, a + "ssm.time_step_rank": 4, a + "ssm.inner_size": 32,
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": []string{"t 1"},
	}, out))
	return path
}

// splitQKVZ takes in_proj_qkvz of tiny-qwen3-next apart: all queries, keys and values; all gates.
func splitQKVZ(x enginetest.Tensor) (qkv, z enginetest.Tensor) {
	const heads, key, values = 2, 16, 16
	row := len(x.Data) / int(x.Shape[0])
	take := func(to *enginetest.Tensor, at, rows int) {
		for h := range heads {
			to.Data = append(to.Data, x.Data[(h*2*(key+values)+at)*row:][:rows*row]...)
		}
		to.Shape, to.Format = []int64{int64(len(to.Data) / row), x.Shape[1]}, x.Format
	}
	take(&qkv, 0, key)
	take(&qkv, key, key)
	take(&qkv, 2*key, values)
	take(&z, 2*key+values, values)
	return qkv, z
}

// TestQwen3NextGGUF checks that both forms of llama.cpp's files give the logits of the safetensors.
func TestQwen3NextGGUF(t *testing.T) {
	list := nextTensors(t)
	b, err := os.ReadFile("testdata/" + qwen3Next + "/config.json")
	must(t, err)
	var config map[string]any
	must(t, json.Unmarshal(b, &config))
	config["mlp_only_layers"] = []int{}
	b, err = json.Marshal(config)
	must(t, err)
	dir := t.TempDir()
	must(t, enginetest.WriteTensors(dir, b, list))
	g := readGolden(t, qwen3Next)
	_, want := RunGolden(t, oneChunk, g, dir)
	for _, split := range []bool{false, true} {
		_, got := RunGolden(t, oneChunk, g, nextGGUF(t, list, split))
		sameRows(t, fmt.Sprintf("split %t", split), got, want)
	}
}
