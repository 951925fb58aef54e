package models

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// gemmaGGUFNames are llama.cpp's names of the parts of Gemma 4's layers.
var gemmaGGUFNames = map[string]string{
	"input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "post_attention_norm.weight",
	"pre_feedforward_layernorm.weight": "ffn_norm.weight", "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
	"self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight", "self_attn.v_proj.weight": "attn_v.weight",
	"self_attn.o_proj.weight": "attn_output.weight", "self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
	"mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight",
	"layer_scalar": "layer_output_scale.weight", "per_layer_input_gate.weight": "inp_gate.weight",
	"per_layer_projection.weight": "proj.weight", "post_per_layer_input_norm.weight": "post_norm.weight",
}

// gemmaGGUFName returns llama.cpp's name of a tensor of the text model.
func gemmaGGUFName(name string) string {
	name = strings.TrimPrefix(name, "model.language_model.")
	if layer, ok := strings.CutPrefix(name, "layers."); ok {
		i, part, _ := strings.Cut(layer, ".")
		return "blk." + i + "." + gemmaGGUFNames[part]
	}
	return map[string]string{
		"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight", "embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
		"per_layer_model_projection.weight": "per_layer_model_proj.weight", "per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
	}[name]
}

// writeGemmaGGUF writes the tensors of a checkpoint in BF16 with these keys, as llama.cpp's converter
// would. Values are uint32, float32, string, []uint32, []bool or []string.
func writeGemmaGGUF(t *testing.T, c *checkpoint.Checkpoint, keys map[string]any) string {
	t.Helper()
	var head, data bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			if s, ok := v.(string); ok {
				v = append(binary.LittleEndian.AppendUint64(nil, uint64(len(s))), s...)
			}
			if err := binary.Write(&head, binary.LittleEndian, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	const typeU32, typeF32, typeBool, typeString, typeArray, bf16 = 4, 6, 7, 8, 9, 30
	tensors := c.Tensors()
	put([]byte("GGUF"), uint32(3), uint64(len(tensors)+1), uint64(len(keys)))
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		put(k)
		switch v := keys[k].(type) {
		case uint32:
			put(uint32(typeU32), v)
		case float32:
			put(uint32(typeF32), v)
		case string:
			put(uint32(typeString), v)
		case []uint32:
			put(uint32(typeArray), uint32(typeU32), uint64(len(v)), v)
		case []bool:
			put(uint32(typeArray), uint32(typeBool), uint64(len(v)), v)
		case []string:
			put(uint32(typeArray), uint32(typeString), uint64(len(v)))
			for _, s := range v {
				put(s)
			}
		}
	}
	for _, x := range tensors {
		put(gemmaGGUFName(x.Name), uint32(len(x.Shape)))
		for _, d := range slices.Backward(x.Shape) {
			put(uint64(d))
		}
		put(uint32(bf16), uint64(data.Len()))
		b := make([]byte, x.Bytes)
		if err := c.ReadRows(x.Name, 0, int(x.Rows()), b); err != nil {
			t.Fatal(err)
		}
		data.Write(b)
		data.Write(make([]byte, -data.Len()&31))
	}
	factors := make([]float32, 16) // a quarter of 32 dimensions is rotated: 4 pairs
	for i := range factors {
		factors[i] = 1
		if i >= 4 {
			factors[i] = 1e30
		}
	}
	put("rope_freqs.weight", uint32(1), uint64(len(factors)), uint32(0), uint64(data.Len()))
	if err := binary.Write(&data, binary.LittleEndian, factors); err != nil {
		t.Fatal(err)
	}
	head.Write(make([]byte, -head.Len()&31))
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, append(head.Bytes(), data.Bytes()...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestGemmaTwinGGUF checks that tiny-gemma4-e gives the same program and the same weights as a GGUF
// file. The golden of the former holds for both.
func TestGemmaTwinGGUF(t *testing.T) {
	c := openTestdata(t, "tiny-gemma4-e")
	tokens, types := make([]string, 160), make([]uint32, 160)
	for i := range tokens {
		tokens[i], types[i] = fmt.Sprintf("t%d", i), 1
	}
	twin, err := checkpoint.Open(writeGemmaGGUF(t, c, map[string]any{
		"general.architecture": "gemma4", "gemma4.block_count": uint32(5), "gemma4.context_length": uint32(1024), "gemma4.embedding_length": uint32(64),
		"gemma4.embedding_length_per_layer_input": uint32(16), "gemma4.attention.shared_kv_layers": uint32(2), "gemma4.feed_forward_length": []uint32{32, 32, 32, 64, 64},
		"gemma4.attention.head_count": uint32(2), "gemma4.attention.head_count_kv": uint32(1), "gemma4.attention.layer_norm_rms_epsilon": float32(1e-6),
		"gemma4.attention.key_length": uint32(32), "gemma4.attention.value_length": uint32(32), "gemma4.attention.key_length_swa": uint32(16),
		"gemma4.attention.value_length_swa": uint32(16), "gemma4.attention.sliding_window": uint32(24), "gemma4.attention.sliding_window_pattern": []bool{true, false, true, true, false},
		"gemma4.rope.dimension_count": uint32(32), "gemma4.rope.dimension_count_swa": uint32(16), "gemma4.rope.freq_base": float32(1e6),
		"gemma4.rope.freq_base_swa": float32(1e4), "gemma4.final_logit_softcapping": float32(30),
		"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": []string{"t 1"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer twin.Close()
	var models [2]Model
	var bytesOf [2]map[string][]byte
	for i, from := range []*checkpoint.Checkpoint{c, twin} {
		m, err := New(from, Build{})
		if err != nil {
			t.Fatal(err)
		}
		models[i], bytesOf[i] = m, map[string][]byte{}
		for _, w := range m.Weights() {
			for n, p := range w.Parts {
				b := p.Format.Bytes(int64(w.Cols) * int64(p.Rows))
				if p.Values != nil {
					bytesOf[i][fmt.Sprint(w.Name, n)] = fmt.Append(nil, p.Values)
					continue
				}
				raw := make([]byte, b)
				if err := backend.ReadPart(from, p, p.Row0, p.Rows, raw); err != nil {
					t.Fatal(err)
				}
				bytesOf[i][fmt.Sprint(w.Name, n)] = raw
			}
		}
	}
	for name, b := range bytesOf[0] {
		if !bytes.Equal(b, bytesOf[1][name]) {
			t.Errorf("%s differs", name)
		}
	}
	if len(bytesOf[0]) != len(bytesOf[1]) {
		t.Errorf("%d parts, in the GGUF file %d", len(bytesOf[0]), len(bytesOf[1]))
	}
	if a, b := passes(t, models[0])[0].Ops, passes(t, models[1])[0].Ops; !reflect.DeepEqual(a, b) {
		t.Errorf("the programs differ:\n%+v\n%+v", a, b)
	}
	if a, b := models[0].Classes(16, kernels.BF16), models[1].Classes(16, kernels.BF16); !reflect.DeepEqual(a, b) {
		t.Errorf("pages %+v, of the GGUF file %+v", a, b)
	}
}
