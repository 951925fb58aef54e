package models_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
	kref "vapp.dev/kernels/ref"
)

const deepseekV3 = "tiny-deepseek-v3"

// deepseekTensors returns the tensors of tiny-deepseek-v3, without those that predict further tokens.
func deepseekTensors(t *testing.T) []enginetest.Tensor {
	t.Helper()
	return slices.DeleteFunc(storedTensors(t, deepseekV3), func(x enginetest.Tensor) bool { return strings.HasPrefix(x.Name, "model.layers.2.") })
}

// storedTensors returns the tensors of a checkpoint of testdata.
func storedTensors(t *testing.T, name string) []enginetest.Tensor {
	t.Helper()
	c, err := checkpoint.Open("testdata/" + name)
	must(t, err)
	defer c.Close()
	list, err := enginetest.ReadTensors(c)
	must(t, err)
	return list
}

// deepseekParts are llama.cpp's names of the parts of a layer.
var deepseekParts = map[string]string{
	"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
	"self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b",
	"self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
	"mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp", "mlp.shared_experts.down_proj": "ffn_down_shexp",
}

// deepseekGGUF writes tensors as llama.cpp's converter does; split takes kv_b_proj apart.
func deepseekGGUF(t *testing.T, list []enginetest.Tensor, split bool) string {
	t.Helper()
	const heads, nope, value, rank = 4, 20, 24, 64
	stacks := map[string]*enginetest.Tensor{}
	var out []enginetest.Tensor
	for _, x := range list {
		_, layer, inside := strings.Cut(x.Name, "model.layers.")
		if !inside {
			x.Name = map[string]string{"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}[x.Name]
			out = append(out, x)
			continue
		}
		n, part, _ := strings.Cut(layer, ".")
		blk := "blk." + n + "."
		if _, expert, ok := strings.Cut(part, "mlp.experts."); ok {
			_, matrix, _ := strings.Cut(expert, ".")
			name := blk + map[string]string{"gate_proj.weight": "ffn_gate_exps", "up_proj.weight": "ffn_up_exps", "down_proj.weight": "ffn_down_exps"}[matrix] + ".weight"
			s := stacks[name]
			if s == nil {
				s = &enginetest.Tensor{Name: name, Shape: append([]int64{0}, x.Shape...), Format: x.Format}
				stacks[name] = s
			}
			s.Shape[0]++
			s.Data = append(s.Data, x.Data...)
			continue
		}
		module := strings.TrimSuffix(part, ".weight")
		switch {
		case strings.HasSuffix(part, "e_score_correction_bias"):
			x.Name = blk + "exp_probs_b.bias"
		case module == "self_attn.kv_b_proj" && split:
			k := enginetest.Tensor{Name: blk + "attn_k_b.weight", Shape: []int64{heads, rank, nope}, Format: x.Format}
			v := enginetest.Tensor{Name: blk + "attn_v_b.weight", Shape: []int64{heads, value, rank}, Format: x.Format}
			size := len(x.Data) / heads / (nope + value) / rank
			for h := range heads {
				head := x.Data[h*(nope+value)*rank*size:][:(nope+value)*rank*size]
				for r := range rank {
					for c := range nope {
						k.Data = append(k.Data, head[(c*rank+r)*size:][:size]...)
					}
				}
				v.Data = append(v.Data, head[nope*rank*size:]...)
			}
			out = append(out, k)
			x = v
		default:
			x.Name = blk + deepseekParts[module] + ".weight"
		}
		out = append(out, x)
	}
	for _, s := range stacks {
		out = append(out, *s)
	}
	tokens, types := make([]string, 160), make([]int32, 160)
	for i := range tokens {
		tokens[i], types[i] = fmt.Sprintf("t%d", i), 1
	}
	const a = "deepseek2."
	keys := map[string]any{
		"general.architecture": "deepseek2", a + "block_count": 2, a + "context_length": 256, a + "embedding_length": 64, a + "feed_forward_length": 48,
		a + "attention.head_count": heads, a + "attention.layer_norm_rms_epsilon": 1e-6, a + "rope.freq_base": 10000.0, a + "rope.dimension_count": 16,
		a + "attention.q_lora_rank": 32, a + "attention.kv_lora_rank": rank, a + "rope.scaling.type": "yarn", a + "rope.scaling.factor": 16.0,
		a + "rope.scaling.original_context_length": 16, a + "rope.scaling.yarn_log_multiplier": 0.1, a + "leading_dense_block_count": 1,
		a + "expert_feed_forward_length": 16, a + "expert_count": 9, a + "expert_used_count": 3, a + "expert_shared_count": 1, a + "expert_weights_scale": 2.5,
		a + "expert_weights_norm": true, a + "expert_gating_func": 2, a + "expert_group_count": 3, a + "expert_group_used_count": 2,
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "deepseek-v3", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": []string{"t 1"},
	}
	if split {
		keys[a+"attention.head_count_kv"], keys[a+"attention.key_length"], keys[a+"attention.value_length"] = 1, rank+16, rank
		keys[a+"attention.key_length_mla"], keys[a+"attention.value_length_mla"] = nope+16, value
	} else {
		keys[a+"attention.head_count_kv"], keys[a+"attention.key_length"], keys[a+"attention.value_length"] = heads, nope+16, value
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	must(t, enginetest.WriteGGUFTensors(path, keys, out))
	return path
}

// oneChunk is a run of a golden file on ref whose weights and pages are F32.
var oneChunk = goldenRun{Opener: ref.Opener{}, KV: kernels.F32, Block: 16, Chunks: []int{1 << 20}, Build: models.Build{Dtype: kernels.F32}}

// TestDeepSeekGGUF checks the two forms of llama.cpp's files against the golden of the same weights.
func TestDeepSeekGGUF(t *testing.T) {
	g := readGolden(t, deepseekV3)
	for _, split := range []bool{false, true} {
		tally, _ := RunGolden(t, oneChunk, g, deepseekGGUF(t, deepseekTensors(t), split))
		if err := tally.Within(enginetest.BoundFloat(deepseekV3, kernels.F32).Times(g.Spread())); err != nil {
			t.Errorf("split %t: %v", split, err)
		}
	}
}

// TestDeepSeekDecoded checks that a quantized kv_b_proj gives the logits of its numbers in F32: in 8-bit
// floats by blocks of 128 × 128, as DeepSeek V3 is published, and in Q8_0.
func TestDeepSeekDecoded(t *testing.T) {
	list := deepseekTensors(t)
	blocks, decoded := deepseekFP8(t, list)
	q8, plain := slices.Clone(list), slices.Clone(list)
	for i, x := range list {
		if !strings.HasSuffix(x.Name, "kv_b_proj.weight") {
			continue
		}
		numbers := widen(x)
		q8[i].Format, q8[i].Data = kernels.Q8_0, make([]byte, kernels.Q8_0.Bytes(int64(len(numbers))))
		kref.Quantize(kernels.Q8_0, numbers, q8[i].Data)
		kref.Dequantize(kernels.Q8_0, q8[i].Data, numbers)
		plain[i].Format, plain[i].Data = kernels.F32, narrow(kernels.F32, numbers)
	}
	g := readGolden(t, deepseekV3)
	for name, pair := range map[string][2]string{
		"fp8":  {deepseekDirectory(t, blocks, ""), deepseekDirectory(t, decoded, "kv_b_proj")},
		"q8_0": {deepseekGGUF(t, q8, false), deepseekGGUF(t, plain, false)},
	} {
		_, got := RunGolden(t, oneChunk, g, pair[0])
		_, want := RunGolden(t, oneChunk, g, pair[1])
		sameRows(t, name, got, want)
	}
}

// deepseekFP8 returns the tensors with linear layers in 8-bit floats, and the same with kv_b_proj in F32.
func deepseekFP8(t *testing.T, list []enginetest.Tensor) (blocks, decoded []enginetest.Tensor) {
	for _, x := range list {
		if len(x.Shape) != 2 || !strings.Contains(x.Name, "_proj") {
			blocks, decoded = append(blocks, x), append(decoded, x)
			continue
		}
		const side = 128
		rows, cols := int(x.Shape[0]), int(x.Shape[1])
		up := func(n int) int { return (n + side - 1) / side }
		numbers, scales := widen(x), make([]float32, up(rows)*up(cols))
		for i, v := range numbers {
			s := &scales[i/cols/side*up(cols)+i%cols/side]
			*s = max(*s, float32(math.Abs(float64(v)))/448)
		}
		for i := range numbers {
			numbers[i] /= scales[i/cols/side*up(cols)+i%cols/side]
		}
		q := enginetest.Tensor{Name: x.Name, Shape: x.Shape, Format: kernels.F8E4M3, Data: narrow(kernels.F8E4M3, numbers)}
		s := enginetest.Tensor{Name: x.Name + "_scale_inv", Shape: []int64{int64(up(rows)), int64(up(cols))}, Format: kernels.F32, Data: narrow(kernels.F32, scales)}
		blocks = append(blocks, q, s)
		if !strings.Contains(x.Name, "kv_b_proj") {
			decoded = append(decoded, q, s)
			continue
		}
		kref.Dequantize(kernels.F8E4M3, q.Data, numbers)
		for i := range numbers {
			numbers[i] *= scales[i/cols/side*up(cols)+i%cols/side]
		}
		decoded = append(decoded, enginetest.Tensor{Name: x.Name, Shape: x.Shape, Format: kernels.F32, Data: narrow(kernels.F32, numbers)})
	}
	return blocks, decoded
}

// deepseekDirectory writes a checkpoint in 8-bit floats; skip is a module that is not converted, "" for
// none.
func deepseekDirectory(t *testing.T, list []enginetest.Tensor, skip string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + deepseekV3 + "/config.json")
	must(t, err)
	var config map[string]any
	must(t, json.Unmarshal(b, &config))
	quantization := map[string]any{"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": []int{128, 128}}
	if skip != "" {
		quantization["modules_to_not_convert"] = []string{skip}
	}
	config["quantization_config"] = quantization
	b, err = json.Marshal(config)
	must(t, err)
	dir := t.TempDir()
	must(t, enginetest.WriteTensors(dir, b, list))
	return dir
}

// widen returns the numbers of a tensor of floats, narrow their bytes in a format.
func widen(x enginetest.Tensor) []float32 {
	out := make([]float32, int64(len(x.Data))/x.Format.Bytes(1))
	kref.Dequantize(x.Format, x.Data, out)
	return out
}

func narrow(f kernels.Format, x []float32) []byte {
	if f == kernels.F32 {
		var out []byte
		for _, v := range x {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
		return out
	}
	out := make([]byte, f.Bytes(int64(len(x))))
	kref.Quantize(f, x, out)
	return out
}
