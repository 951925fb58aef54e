package models

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// TestGptOssExperts builds experts as published and as transformers saves them after
// dequantization, whole and as a rank's part.
func TestGptOssExperts(t *testing.T) {
	plain := alterConfig(t, "gpt-oss-20b", map[string]any{"quantization_config": nil, "torch_dtype": "bfloat16"})
	stored := alterConfig(t, "gpt-oss-20b", nil)
	find := func(m Model, name string) backend.WeightSpec {
		for _, w := range m.Weights() {
			if w.Name == name {
				return w
			}
		}
		t.Fatalf("no weight %s", name)
		return backend.WeightSpec{}
	}
	for _, c := range []struct {
		name       string
		cfg        checkpoint.Config
		build      Build
		format     kernels.Format
		width      int
		up0, down0 int // where a rank's part begins
	}{
		{"mxfp4", stored, Build{}, kernels.MXFP4, 2880, 0, 0},
		{"bf16", plain, Build{}, kernels.BF16, 2880, 0, 0},
		{"fp8 online", plain, Build{Quantize: kernels.F8E4M3}, kernels.F8E4M3, 2880, 0, 0},
		// 90 blocks of 32: two ranks have 23, two 22.
		{"mxfp4 of 4", stored, Build{Shard: backend.Shard{Rank: 1, World: 4}}, kernels.MXFP4, 736, 1472, 736},
		{"mxfp4 last of 4", stored, Build{Shard: backend.Shard{Rank: 3, World: 4}}, kernels.MXFP4, 704, 4352, 2176},
		{"bf16 last of 4", plain, Build{Shard: backend.Shard{Rank: 3, World: 4}}, kernels.BF16, 704, 4352, 2176},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := buildModel(c.cfg, c.build)
			if err != nil {
				t.Fatal(err)
			}
			up, down := find(m, "layers.0.gate_up"), find(m, "layers.0.down")
			if up.Stored() != c.format || up.Experts != 32 || up.Rows != 2*c.width || up.Cols != 2880 || up.Parts[0].Row0 != c.up0 {
				t.Errorf("gate_up: %+v", up)
			}
			if down.Stored() != c.format || down.Experts != 32 || down.Rows != 2880 || down.Cols != c.width || down.Parts[0].Col0 != c.down0 {
				t.Errorf("down: %+v", down)
			}
			if bias := find(m, "layers.0.gate_up_bias"); bias.Cols != 32*2*c.width || c.width == 2880 && (bias.Parts[0].Rows != 32 || bias.Parts[0].Elems != bias.Cols) ||
				c.width != 2880 && (bias.Parts[31].Row0 != 31 || bias.Parts[31].Col0 != c.up0 || bias.Parts[31].Elems != 2*c.width) {
				t.Errorf("bias of %d columns, %+v", bias.Cols, bias.Parts)
			}
			transposed := c.cfg.QuantizationConfig == nil
			if p := up.Parts[0]; p.Transposed != transposed || p.Stride != map[bool]int{true: 2880, false: 5760}[transposed] {
				t.Errorf("gate_up reads %+v", p)
			}
			if _, err := recordStep(m, kernels.BF16, bucket); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGptOssLayout checks that experts stored as [E, out, in] are not mistaken for [E, in, out].
func TestGptOssLayout(t *testing.T) {
	cfg := alterConfig(t, "gpt-oss-20b", map[string]any{"quantization_config": nil})
	list, err := Tensors(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range list {
		if strings.HasSuffix(w.Name, "gate_up_proj") {
			list[i] = transpose(w)
		}
	}
	ck, err := checkpoint.Dummy(cfg, list, 1)
	if err != nil {
		t.Fatal(err)
	}
	var wrong *MismatchError
	if _, err := New(ck, Build{}); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "gate_up_proj") {
		t.Errorf("transposed experts: %v", err)
	}
}

// TestHybridRefusals checks that unsupported configs give an error that names the problem.
func TestHybridRefusals(t *testing.T) {
	type change = map[string]any
	types := func(word string) []string {
		list := make([]string, 24)
		for i := range list {
			list[i] = word
		}
		return list
	}
	for _, c := range []struct {
		model  string
		change change
		want   string
	}{
		{"gpt-oss-20b", change{"num_local_experts": 0}, "without experts"},
		{"gpt-oss-20b", change{"num_experts_per_tok": 33}, "33 experts a token"},
		{"gpt-oss-20b", change{"num_experts_per_tok": 0}, "0 experts a token"},
		{"gpt-oss-20b", change{"num_local_experts": 16384}, "24 layers of 16384 experts"},
		{"gpt-oss-20b", change{"layer_types": types("sliding_attention")}, "without full attention"},
		{"gpt-oss-20b", change{"layer_types": types("linear_attention")}, `layer_types[0] "linear_attention"`},
		{"gpt-oss-20b", change{"sliding_window": nil}, "no sliding_window"},
		{"gpt-oss-20b", change{"hidden_size": 2890}, "multiples of 32"},
		{"gpt-oss-20b", change{"hidden_act": "gelu"}, "hidden_act gelu"},
		{"gpt-oss-20b", change{"swiglu_limit": -1}, "swiglu_limit"},
		{"gpt-oss-20b", change{"quantization_config": json.RawMessage(`{"quant_method":"fp8"}`)}, "gpt-oss in 8-bit floats"},
		{"gpt-oss-20b", change{"rope_scaling": json.RawMessage(`{"rope_type":"spiral"}`)}, "spiral"},
		{"gpt-oss-20b", change{"rope_theta": 1}, "rope_theta"},
	} {
		t.Run(c.want, func(t *testing.T) {
			_, err := Tensors(alterConfig(t, c.model, c.change))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v: %v", c.change, err)
			}
		})
	}
	cfg := alterConfig(t, "gpt-oss-20b", nil)
	for _, b := range []Build{
		{Shard: backend.Shard{World: 3}}, {Shard: backend.Shard{World: 128}}, {Pipe: backend.Shard{World: 25}}, {Quantize: kernels.F8E4M3},
	} {
		var refused *UnsupportedError
		if _, err := buildModel(cfg, b); !errors.As(err, &refused) {
			t.Errorf("%+v: %v", b, err)
		}
	}
}
