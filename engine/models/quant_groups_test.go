package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// awqConfig is a quantization_config as AutoAWQ writes it.
const awqConfig = `{"quant_method":"awq","bits":4,"group_size":128,"modules_to_not_convert":null,"version":"gemm","zero_point":true}`

// nvfp4Config is a quantization_config as llm-compressor writes it, modelOptConfig one as ModelOpt does.
const (
	nvfp4Config    = `{"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized","ignore":["lm_head"],"config_groups":{"group_0":{"targets":["Linear"],"input_activations":{"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16,"dynamic":"local"},"weights":{"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16,"symmetric":true,"dynamic":false}}}}`
	modelOptConfig = `{"quant_method":"modelopt","quant_algo":"NVFP4","ignore":["lm_head"],"config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"float","group_size":16}}}}`
)

// TestNVFP4Bytes checks that backends keep NVFP4, in dense matrices and in experts, and the bytes: ref and
// cpu have a scale for each output.
func TestNVFP4Bytes(t *testing.T) {
	for _, name := range []string{"Qwen/Qwen2-7B", "Qwen/Qwen3-30B-A3B"} {
		for _, config := range []string{nvfp4Config, modelOptConfig} {
			m, err := buildModel(alterConfig(t, name, quantConfig(config)), Build{})
			if err != nil {
				t.Fatal(err)
			}
			on := layouts(t)
			on["cuda"] = onDevice(t, "h100")
			for on, l := range on {
				seen := 0
				for _, w := range m.Weights() {
					if w.Source != kernels.NVFP4 {
						continue
					}
					seen++
					p, err := l.Weight(w)
					if err != nil {
						t.Fatalf("%s on %s: %s: %v", name, on, w.Name, err)
					}
					want := kernels.NVFP4.Bytes(w.Elems()) + 4*int64(w.Rows)*int64(max(1, w.Experts))
					if on == "cuda" {
						want = cudaScales(w)
					}
					if p.Format != kernels.NVFP4 || p.Bytes != want || p.Note != "" {
						t.Errorf("%s on %s: %s becomes %v of %d bytes, %q; want %d", name, on, w.Name, p.Format, p.Bytes, p.Note, want)
					}
				}
				if seen == 0 {
					t.Errorf("%s on %s: no weight of NVFP4", name, on)
				}
			}
		}
	}
}

// cudaScales returns the bytes of a weight of NVFP4 on cuda, whose scales are those of the parts, or of all
// outputs where experts have several parts.
func cudaScales(w backend.WeightSpec) int64 {
	scales := w.Scales()
	if w.Experts > 0 && len(w.Parts) > 1 {
		scales = int64(w.Experts) * int64(w.Rows)
	}
	return kernels.NVFP4.Bytes(w.Elems()) + (4*scales+255)/256*256
}

// TestNVFP4Shards divides the inputs of experts into odd numbers of groups, which panels pad, and refuses
// parts of groups.
func TestNVFP4Shards(t *testing.T) {
	c := alterConfig(t, "Qwen/Qwen3-30B-A3B", quantConfig(modelOptConfig))
	m, err := buildModel(c, Build{Shard: backend.Shard{Rank: 3, World: 16}})
	if err != nil {
		t.Fatal(err)
	}
	for on, l := range layouts(t) {
		for _, w := range m.Weights() {
			if !strings.HasSuffix(w.Name, ".down") {
				continue
			}
			p, err := l.Weight(w)
			want := kernels.NVFP4.Bytes(w.Elems()/48*64) + 4*int64(w.Rows)*int64(w.Experts)
			if strings.HasPrefix(on, "ref") {
				want = kernels.NVFP4.Bytes(w.Elems()) + 4*int64(w.Rows)*int64(w.Experts)
			}
			if err != nil || w.Cols != 48 || w.Parts[0].Col0 != 3*48 || p.Bytes != want {
				t.Fatalf("%s: %s has %d columns from %d on, %d bytes, %v; want %d", on, w.Name, w.Cols, w.Parts[0].Col0, p.Bytes, err, want)
			}
		}
	}
	if _, err = buildModel(c, Build{Shard: backend.Shard{Rank: 3, World: 32}}); err == nil || !strings.Contains(err.Error(), "are no whole blocks of 16") {
		t.Errorf("24 inputs for a rank: %v", err)
	}
}

// gptqConfig returns a quantization_config as AutoGPTQ writes it, with additional keys.
func gptqConfig(bits int, more string) string {
	return fmt.Sprintf(`{"quant_method":"gptq","bits":%d,"group_size":32,"damp_percent":0.01,"true_sequential":true,"lm_head":false,%s}`, bits, more)
}

// int4Config returns a quantization_config as llm-compressor writes it, with additional keys for
// weights.
func int4Config(weights string) json.RawMessage {
	return json.RawMessage(strings.Replace(string(int8Config("pack-quantized", weights, "null")), `"num_bits":8`, `"num_bits":4`, 1))
}

// TestGroupedSkips checks that modules that are left out are stored in torch_dtype.
func TestGroupedSkips(t *testing.T) {
	for config, want := range map[string]string{
		awqConfig:   "lm_head.weight",
		nvfp4Config: "lm_head.weight",
		strings.Replace(modelOptConfig, "lm_head", "model.layers.0.*", 1):          "model.layers.0.mlp.up_proj.weight",
		strings.Replace(awqConfig, "null", `["model.layers.0.mlp"]`, 1):            "model.layers.0.mlp.up_proj.weight",
		gptqConfig(4, `"dynamic":{"-:model\\.layers\\.1\\..*":{}}`):                "model.layers.1.self_attn.q_proj.weight",
		string(int4Config(`"strategy":"group","group_size":128,"symmetric":true`)): "lm_head.weight",
	} {
		list, err := Tensors(alterConfig(t, "Qwen/Qwen2-7B", quantConfig(config)))
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range list {
			if inside := strings.HasSuffix(x.Name, "layers.2.self_attn.q_proj.weight"); inside && x.Format != kernels.I4 && x.Format != kernels.NVFP4 || x.Name == want && x.Format != kernels.BF16 {
				t.Errorf("%s: %s is stored as %v", config, x.Name, x.Format)
			}
		}
	}
}

// TestActOrder checks that programs put inputs in the order of a weight, and that ranks do not divide
// them.
func TestActOrder(t *testing.T) {
	cfg := alterConfig(t, "Qwen/Qwen2-0.5B", quantConfig(gptqConfig(4, `"desc_act":true`)))
	m, err := buildModel(cfg, Build{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := recordStep(m, kernels.BF16, bucket)
	if err != nil {
		t.Fatal(err)
	}
	orders := 0
	for i, op := range p.Ops {
		o, is := op.(backend.Reorder)
		if !is {
			continue
		}
		orders++
		product, next := p.Ops[i+1].(backend.Linear)
		if !next || product.X != o.Y || m.Weights()[product.W].InputOrder != 1+int(o.Order) {
			t.Errorf("op %d reorders for %+v", i, p.Ops[i+1])
		}
	}
	chunks := (bucket.Tokens + max(1, bucket.Chunk) - 1) / max(1, bucket.Chunk)
	if bucket.Chunk == 0 {
		chunks = 1
	}
	if want := cfg.NumLayers * (2 + 2*chunks); orders != want {
		t.Errorf("%d products have an order, want %d", orders, want)
	}
	for on, l := range layouts(t) {
		if _, err := dryRun(l, m, p); err != nil {
			t.Errorf("%s: %v", on, err)
		}
	}
	var refused *UnsupportedError
	if _, err := buildModel(cfg, Build{Shard: backend.Shard{World: 2}}); !errors.As(err, &refused) || !strings.Contains(err.Error(), "not divided between ranks") {
		t.Errorf("on two ranks: %v", err)
	}
}

// TestOrderDamage checks that orders that differ within a matrix, or are none, are refused.
func TestOrderDamage(t *testing.T) {
	cfg := alterConfig(t, "Qwen/Qwen2-0.5B", quantConfig(gptqConfig(4, `"desc_act":true`)))
	const order = "model.layers.0.self_attn.%s_proj.weight" + checkpoint.OrderSuffix
	for name, edit := range map[string]func([]checkpoint.TensorInfo) []checkpoint.TensorInfo{
		"is missing": func(list []checkpoint.TensorInfo) []checkpoint.TensorInfo {
			for i := range list {
				if list[i].Name == fmt.Sprintf(order, "k") {
					return append(list[:i:i], list[i+1:]...)
				}
			}
			return nil
		},
		"is stored as bf16": func(list []checkpoint.TensorInfo) []checkpoint.TensorInfo {
			for i := range list {
				if list[i].Name == fmt.Sprintf(order, "q") {
					list[i].Format = kernels.BF16
				}
			}
			return list
		},
	} {
		if name == "is stored as bf16" {
			name = "not divided between ranks"
		}
		if _, err := buildStored(cfg, Build{}, nil, edit); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
	for _, b := range [][]byte{{0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0x40}, {0, 0, 0, 0, 0, 0, 0, 0x3f}, {0, 0, 0, 0, 0, 0, 0xc0, 0x7f}} {
		if permutation(b, 2) == nil {
			t.Errorf("%v is an order of two", b)
		}
	}
	if err := permutation([]byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0}, 2); err != nil {
		t.Error(err)
	}
}

// TestGroupedBytes checks that a published model is planned from its config alone, with the bytes that
// its weights take: 20 for 32 inputs.
func TestGroupedBytes(t *testing.T) {
	for _, name := range []string{"Qwen/Qwen2.5-7B-Instruct-AWQ", "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4"} {
		m, err := buildModel(alterConfig(t, name, nil), Build{})
		if err != nil {
			t.Fatal(err)
		}
		for on, l := range layouts(t) {
			var n int64
			for _, w := range m.Weights() {
				if w.Stored() != kernels.I4 {
					continue
				}
				p, err := l.Weight(w)
				if err != nil || p.Format != kernels.I4 {
					t.Fatalf("%s on %s: %s becomes %v: %v", name, on, w.Name, p.Format, err)
				}
				n += p.Bytes
			}
			if want := int64(6525288448) / 32 * 20; n != want {
				t.Errorf("%s on %s: %d bytes of linear layers, want %d", name, on, n, want)
			}
		}
	}
}
