package models

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// ggufMix returns the format that llama.cpp's Q4_K_M files use for a tensor: F32 for vectors, Q6_K
// for values and outputs, Q4_K for the others.
func ggufMix(x checkpoint.TensorInfo) kernels.Format {
	switch {
	case len(x.Shape) < 2:
		return kernels.F32
	case strings.Contains(x.Name, "v_proj") || strings.Contains(x.Name, "lm_head") || strings.Contains(x.Name, "down_proj"):
		return kernels.Q6_K
	}
	return kernels.Q4_K
}

// buildStored builds the model of a config whose tensors are stored in format f and then changed by
// edit.
func buildStored(c checkpoint.Config, b Build, f func(checkpoint.TensorInfo) kernels.Format, edit func([]checkpoint.TensorInfo) []checkpoint.TensorInfo) (Model, error) {
	tensors, err := Tensors(c)
	if err != nil {
		return nil, err
	}
	for i := range tensors {
		if f != nil {
			tensors[i].Format = f(tensors[i])
		}
	}
	if edit != nil {
		tensors = edit(tensors)
	}
	ck, err := checkpoint.Dummy(c, tensors, 1)
	if err != nil {
		return nil, err
	}
	return New(ck, b)
}

// TestGGUFPlans checks that weights keep the file's block format, also when split over ranks or
// made of parts in several formats, and that splitting a block is refused.
func TestGGUFPlans(t *testing.T) {
	cfg := alterConfig(t, "Qwen/Qwen2-7B", nil)
	cfg.Dialect, cfg.TorchDtype = "gguf", ""
	for _, world := range []int{1, 2} {
		m, err := buildStored(cfg, Build{Shard: backend.Shard{World: world}}, ggufMix, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range m.Weights() {
			want := kernels.Q4_K
			switch {
			case w.Use&backend.Vector != 0:
				want = kernels.F32
			case strings.HasSuffix(w.Name, "qkv"):
				want = kernels.Invalid
			case w.Name == "head" || strings.HasSuffix(w.Name, "down"):
				want = kernels.Q6_K
			}
			if w.Source != want || w.Target != kernels.Invalid {
				t.Errorf("%s is %v, turned into %v; want %v", w.Name, w.Source, w.Target, want)
			}
		}
		p, err := recordStep(m, kernels.F16, bucket)
		if err != nil {
			t.Fatal(err)
		}
		for on, l := range layouts(t) {
			if _, err := dryRun(l, m, p); err != nil {
				t.Errorf("%s: %v", on, err)
			}
		}
	}
	for b, want := range map[Build]string{
		{Shard: backend.Shard{World: 4}}: "896 columns of model.layers.0.self_attn.o_proj.weight are no whole blocks of 256",
		{Quantize: kernels.F8E4M3}:       "no linear layer is stored as f32, f16 or bf16",
	} {
		var refused *UnsupportedError
		if _, err := buildStored(cfg, b, ggufMix, nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", b, err, want)
		}
	}
}

// TestCheckTensors checks that scales may have several names and shapes, that unused tensors may be
// present, and that other differences are refused by name.
func TestCheckTensors(t *testing.T) {
	const layer = "model.layers.0.mlp.down_proj.weight"
	cfg := alterConfig(t, "Qwen/Qwen2-0.5B", quantConfig(`{"quant_method":"fp8","activation_scheme":"static"}`))
	rename := func(from, to string, shape ...int64) func([]checkpoint.TensorInfo) []checkpoint.TensorInfo {
		return func(list []checkpoint.TensorInfo) []checkpoint.TensorInfo {
			for i := range list {
				if list[i].Name == from {
					list[i].Name = to
					if shape != nil {
						list[i].Shape = shape
					}
				}
			}
			return list
		}
	}
	add := func(name string, f kernels.Format, shape ...int64) func([]checkpoint.TensorInfo) []checkpoint.TensorInfo {
		return func(list []checkpoint.TensorInfo) []checkpoint.TensorInfo {
			return append(list, checkpoint.TensorInfo{Name: name, Format: f, Shape: shape})
		}
	}
	as := func(name string, f kernels.Format) func([]checkpoint.TensorInfo) []checkpoint.TensorInfo {
		return func(list []checkpoint.TensorInfo) []checkpoint.TensorInfo {
			for i := range list {
				if list[i].Name == name {
					list[i].Format = f
				}
			}
			return list
		}
	}
	for _, c := range []struct {
		name string
		edit func([]checkpoint.TensorInfo) []checkpoint.TensorInfo
		want string
	}{
		{"as listed", nil, ""},
		{"the other spelling", rename(layer+"_scale", layer+"_scale_inv"), ""},
		{"one number in a list", rename(layer+"_scale", layer+"_scale", 1), ""},
		{"the other spelling of one in a list", rename(layer+"_scale", layer+"_scale_inv", 1, 1), ""},
		{"a scale in bf16", as(layer+"_scale", kernels.BF16), ""},
		{"scales of activations", add("model.layers.0.mlp.down_proj.input_scale", kernels.F32), ""},
		{"scales of the cache", add("model.layers.0.self_attn.k_scale", kernels.F32, 1), ""},
		{"a tied head", add("lm_head.weight", kernels.BF16, 151936, 896), ""},
		{"a norm in f32", as("model.norm.weight", kernels.F32), ""},
		{"no scale", rename(layer+"_scale", "model.layers.0.mlp.down_proj.input_scale"), layer + "_scale is missing"},
		{"a scale too many", add("model.layers.0.mlp.down_proj.weight_scale_inv", kernels.F32), layer + "_scale_inv is not part of the model"},
		{"scales of channels", rename(layer+"_scale", layer+"_scale", 896, 1), layer + "_scale has shape [896 1] instead of []"},
		{"a scale in bytes", as(layer+"_scale", kernels.U8), layer + "_scale is stored as u8"},
		{"a weight that is not quantized", as(layer, kernels.BF16), layer + " is stored as bf16 instead of f8_e4m3"},
		{"a weight in another 8-bit float", as(layer, kernels.F8E5M2), layer + " is stored as f8_e5m2 instead of f8_e4m3"},
		{"a norm in 8 bits", as("model.norm.weight", kernels.F8E4M3), "model.norm.weight is stored as f8_e4m3 instead of bf16"},
		{"another model's tensor", add("model.layers.0.mlp.router.weight", kernels.BF16, 8, 896), "model.layers.0.mlp.router.weight is not part of the model"},
		{"another shape", rename("model.norm.weight", "model.norm.weight", 895), "model.norm.weight has shape [895] instead of [896]"},
	} {
		m, err := buildStored(cfg, Build{}, nil, c.edit)
		var wrong *MismatchError
		switch {
		case c.want != "":
			if !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		default:
			i := slices.IndexFunc(m.Weights(), func(w backend.WeightSpec) bool { return w.Name == "layers.0.down" })
			p := m.Weights()[i].Parts[0]
			if m.Weights()[i].Scaling != backend.PerTensor || !strings.HasPrefix(p.Scale, layer+"_scale") {
				t.Errorf("%s: scaled %v by %q", c.name, m.Weights()[i].Scaling, p.Scale)
			}
		}
	}
}

// TestKVScales checks that stored scales of K and V are refused only for page formats that would
// need them.
func TestKVScales(t *testing.T) {
	cfg := alterConfig(t, "Qwen/Qwen2-0.5B", nil)
	for _, c := range []struct {
		name string
		kv   kernels.Format
		want string
	}{
		{"model.layers.0.self_attn.k_scale", kernels.F8E4M3, "layers.0.self_attn.k_scale"},
		{"model.layers.0.self_attn.v_proj.v_scale", kernels.F8E5M2, "v_proj.v_scale"},
		{"model.layers.0.self_attn.k_scale", kernels.BF16, ""},
		{"model.layers.0.self_attn.q_proj.input_scale", kernels.F8E4M3, ""},
	} {
		tensors, err := Tensors(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ck, err := checkpoint.Dummy(cfg, append(tensors, checkpoint.TensorInfo{Name: c.name, Format: kernels.F32, Shape: []int64{1}}), 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := KVScales(ck, c.kv); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s with pages of %v: %v, want %q", c.name, c.kv, err, c.want)
		}
	}
}
