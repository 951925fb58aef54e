package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// machine is the fixed machine for which these tests plan.
var machine = backend.Facts{Cores: 8, Variants: []string{"amx", "avx512", "avx2", "generic"}, PageBytes: 4096, HugeBytes: 2 << 20}

// layouts returns the layouts of every backend and variant.
func layouts(t testing.TB) map[string]backend.Layout {
	t.Helper()
	out := map[string]backend.Layout{}
	add := func(o backend.Opener, s backend.Settings) {
		l, err := o.Layout(machine, s)
		if err != nil {
			t.Fatal(err)
		}
		out[o.Name()+" "+s.Variant] = l
	}
	add(ref.Opener{}, backend.Settings{})
	for _, v := range machine.Variants {
		add(cpu.Opener{}, backend.Settings{Variant: v})
	}
	return out
}

// alterConfig returns the config of a catalogued model with other values for some keys.
func alterConfig(t testing.TB, name string, change map[string]any) checkpoint.Config {
	t.Helper()
	c, ok, err := CatalogueConfig(name)
	if err != nil || !ok {
		t.Fatalf("%s: %v, %v", name, ok, err)
	}
	var m map[string]any
	if err := json.Unmarshal(c.Raw, &m); err != nil {
		t.Fatal(err)
	}
	maps.Copy(m, change)
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	c, err = checkpoint.ParseConfig(name, raw)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// buildModel returns a config's model for one rank, with dummy weights.
func buildModel(c checkpoint.Config, b Build) (Model, error) {
	tensors, err := Tensors(c)
	if err != nil {
		return nil, err
	}
	ck, err := checkpoint.Dummy(c, tensors, 1)
	if err != nil {
		return nil, err
	}
	return New(ck, b)
}

// bucket is a step of 2048 tokens of 64 sequences.
var bucket = backend.Bucket{Tokens: 2048, Seqs: 64, Samples: 64}

// recordStep records and checks the largest step of a model with pages of 16 tokens.
func recordStep(m Model, f kernels.Format, b backend.Bucket) (*backend.Program, error) {
	classes := m.Classes(16, f)
	for i := range classes {
		c := &classes[i]
		c.PagesPerSlab, c.MaxPages, c.SlabBytes = 1, 64, c.PageBytes()
	}
	p, err := m.Record(&backend.Program{Name: "step", Bucket: b, Classes: classes})
	if err != nil {
		return nil, err
	}
	return p, p.Check()
}

// dryRun plans a model on the dry backend over a layout.
func dryRun(l backend.Layout, m Model, p *backend.Program) (backend.Reservation, error) {
	s := backend.StepShape{Tokens: p.Bucket.Tokens, Seqs: p.Bucket.Seqs, Samples: p.Bucket.Samples, Vocab: m.Vocab(), Bias: 1, Logprobs: 1}
	for range p.Classes {
		s.MaxPages = append(s.MaxPages, 64)
	}
	return dry.Run(l, m.Weights(), []*backend.Program{p}, s, 1<<20)
}

// quantizations lists the quantized forms of dense checkpoints, stored or converted while packed:
// the change of the config, and the build.
var quantizations = []struct {
	name   string
	config map[string]any
	build  Build
	source kernels.Format  // format of linear layers in the checkpoint
	stored kernels.Format  // their format when packed
	scales backend.Scaling // their scaling
}{
	{"bf16", nil, Build{}, kernels.BF16, kernels.BF16, backend.NoScale},
	{"fp16", nil, Build{Dtype: kernels.F16}, kernels.BF16, kernels.F16, backend.NoScale},
	{"fp32", nil, Build{Dtype: kernels.F32}, kernels.BF16, kernels.F32, backend.NoScale},
	{"fp16 stored", map[string]any{"torch_dtype": "float16"}, Build{}, kernels.F16, kernels.F16, backend.NoScale},
	{"fp8 online", nil, Build{Quantize: kernels.F8E4M3}, kernels.BF16, kernels.F8E4M3, backend.PerChannel},
	{"fp8 block", quantConfig(`{"quant_method":"fp8","weight_block_size":[128,128]}`), Build{}, kernels.F8E4M3, kernels.F8E4M3, backend.PerBlock},
	{"fp8 tensor", quantConfig(`{"quant_method":"fp8","activation_scheme":"static","ignored_layers":["lm_head"]}`), Build{Quantize: kernels.F8E4M3}, kernels.F8E4M3, kernels.F8E4M3, backend.PerTensor},
	{"fp8 channel", quantConfig(string(compressed("channel", `["lm_head"]`))), Build{}, kernels.F8E4M3, kernels.F8E4M3, backend.PerChannel},
	{"modelopt", quantConfig(`{"quant_method":"modelopt","quant_algo":"FP8","ignore":["lm_head"]}`), Build{Dtype: kernels.F16}, kernels.F8E4M3, kernels.F8E4M3, backend.PerTensor},
	{"w8a8", quantConfig(string(int8Config("int-quantized", int8Channel, int8Token))), Build{}, kernels.I8, kernels.I8, backend.PerChannel},
	{"w8a16", quantConfig(string(int8Config("pack-quantized", strings.Replace(int8Groups, "128", "32", 1), "null"))), Build{}, kernels.I8, kernels.I8, backend.PerGroup},
	{"w4a16", quantConfig(string(int4Config(`"strategy":"group","group_size":32,"symmetric":false`))), Build{}, kernels.I4, kernels.I4, backend.NoScale},
	{"gptq", quantConfig(gptqConfig(4, `"sym":true`)), Build{Dtype: kernels.F16}, kernels.I4, kernels.I4, backend.NoScale},
	{"gptq of 8 bits", quantConfig(gptqConfig(8, `"sym":true`)), Build{}, kernels.Q8_0, kernels.Q8_0, backend.NoScale},
	{"awq", quantConfig(awqConfig), Build{}, kernels.I4, kernels.I4, backend.NoScale},
	{"nvfp4", quantConfig(nvfp4Config), Build{}, kernels.NVFP4, kernels.NVFP4, backend.PerTensor},
	{"nvfp4 of modelopt", quantConfig(modelOptConfig), Build{}, kernels.NVFP4, kernels.NVFP4, backend.PerTensor},
	{"fbgemm", quantConfig(`{"quant_method":"fbgemm_fp8","modules_to_not_convert":["lm_head"]}`), Build{Dtype: kernels.F16}, kernels.F8E4M3, kernels.F8E4M3, backend.PerChannel},
}

func quantConfig(config string) map[string]any {
	return map[string]any{"quantization_config": json.RawMessage(config)}
}

// TestDense plans the dense families in every form, on every layout, for every rank. Programs must
// be sound, and exactly the linear layers must be quantized.
func TestDense(t *testing.T) {
	all := layouts(t)
	for _, name := range []string{"meta-llama/Llama-3.2-1B", "Qwen/Qwen2-7B", "Qwen/Qwen3-8B", "Qwen/Qwen2-0.5B"} {
		for _, q := range quantizations {
			for _, world := range []int{1, 2, 4, 8} {
				t.Run(fmt.Sprintf("%s/%s/tp%d", name, q.name, world), func(t *testing.T) {
					cfg := alterConfig(t, name, q.config)
					for _, rank := range []int{0, world - 1} {
						b := q.build
						b.Shard = backend.Shard{Rank: rank, World: world}
						m, err := buildModel(cfg, b)
						if why := whyUndivided(cfg, world, q.scales == backend.PerBlock); why != "" {
							var refused *UnsupportedError
							if !errors.As(err, &refused) {
								t.Fatalf("%s, and yet: %v", why, err)
							}
							t.Skip(err)
						}
						if err != nil {
							t.Fatal(err)
						}
						checkStored(t, m, q.source, q.stored, q.scales)
						p, err := recordStep(m, kernels.BF16, bucket)
						if err != nil {
							t.Fatal(err)
						}
						for on, l := range all {
							r, err := dryRun(l, m, p)
							if err != nil {
								t.Errorf("%s: %v", on, err)
							} else if r.Arenas[backend.Weights] < elements(m)/2 || r.Arenas[backend.Scratch] < p.Scratch {
								t.Errorf("%s: arenas of %v", on, r.Arenas)
							}
						}
					}
				})
			}
		}
	}
}

// whyUndivided returns why a config cannot be split over world ranks, "" if it can.
func whyUndivided(c checkpoint.Config, world int, blocks bool) string {
	switch {
	case c.NumHeads%world != 0:
		return "heads do not divide"
	case c.NumKVHeads%world != 0 && world%c.NumKVHeads != 0:
		return "key/value heads do not divide"
	case blocks && c.IntermediateSize/world%backend.ScaleBlock != 0,
		blocks && world > 1 && max(1, c.NumKVHeads/world)*c.HeadDim%backend.ScaleBlock != 0,
		blocks && world > 1 && c.NumHeads/world*c.HeadDim%backend.ScaleBlock != 0:
		return "blocks do not divide"
	}
	return ""
}

func checkStored(t *testing.T, m Model, source, stored kernels.Format, scales backend.Scaling) {
	t.Helper()
	linears := 0
	for _, w := range m.Weights() {
		switch {
		case w.Use&backend.Vector != 0:
			if w.Target != kernels.Invalid || w.Scaling != backend.NoScale {
				t.Errorf("%s, a vector, becomes %v, scaled %v", w.Name, w.Target, w.Scaling)
			}
		case w.Group == "attention" || w.Group == "mlp":
			linears++
			if w.Source != source || w.Stored() != stored || w.Scaling != scales {
				t.Errorf("%s is %v, stored as %v, scaled %v; want %v, %v, %v", w.Name, w.Source, w.Stored(), w.Scaling, source, stored, scales)
			}
			for _, p := range w.Parts {
				if (p.Scale != "") != (source == kernels.F8E4M3 || source == kernels.I8 || source == kernels.NVFP4) {
					t.Errorf("%s: the scales of %s are %q", w.Name, p.Tensor, p.Scale)
				}
			}
		default:
			if f := w.Stored(); !plain(f) || w.Scaling != backend.NoScale || plain(stored) && f != stored {
				t.Errorf("%s is stored as %v", w.Name, f)
			}
		}
	}
	if linears == 0 {
		t.Error("no linear layer")
	}
}

// elements returns the number of elements in a model's weights.
func elements(m Model) (n int64) {
	for _, w := range m.Weights() {
		n += w.Elems()
	}
	return n
}
