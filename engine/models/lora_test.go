package models_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// loraGoldens are the adapters of testdata/lora: checkpoint, "@" and what the adapter shows.
var loraGoldens = []string{"tiny-llama3-tied@all", "tiny-qwen3@patterns", "tiny-phi3@fused", "tiny-glm4@pairs", "tiny-qwen3-moe@attention"}

// loraSlot is the slot that goldens use, of three.
const loraSlot = 1

// TestLoRARef compares adapters on ref with PEFT: with slots in F32 within the bounds of float32, with slots in
// the checkpoint's format within those of bf16.
func TestLoRARef(t *testing.T) {
	loraGolden(t, ref.Opener{}, backend.Settings{}, enginetest.BoundFloat)
}

func loraGolden(t *testing.T, on backend.Opener, s backend.Settings, limit bound) {
	for _, name := range loraGoldens {
		t.Run(name, func(t *testing.T) {
			g, err := enginetest.ReadGolden(filepath.Join("testdata/lora", name+".safetensors"))
			must(t, err)
			path, _, _ := strings.Cut(name, "@")
			for _, dtype := range []kernels.Format{kernels.F32, kernels.BF16} {
				run := goldenRun{Opener: on, Settings: s, KV: kernels.F32, Block: 16, Chunks: []int{17}, LoRA: filepath.Join("testdata/lora", name)}
				run.Build = models.Build{Dtype: dtype, LoRA: models.LoRA{Slots: 3, Rank: 8}}
				within := limit
				if dtype == kernels.BF16 {
					within = enginetest.BoundBF16
				}
				tally, with := RunGolden(t, run, g, filepath.Join("testdata", path))
				sigma := g.Spread()
				t.Logf("slots of %v: max |Δ| %.2g σ, rms %.2g σ", dtype, float64(tally.Max)/sigma, tally.RMS()/sigma)
				if err := tally.Within(within(path, kernels.F32).Times(sigma)); err != nil {
					t.Errorf("slots of %v: %v", dtype, err)
				}
				run.LoRA = ""
				_, without := RunGolden(t, run, g, filepath.Join("testdata", path))
				run.Build.LoRA = models.LoRA{}
				_, plain := RunGolden(t, run, g, filepath.Join("testdata", path))
				sameRows(t, "rows without an adapter, and a model without slots", without, plain)
				if with[0][0] == plain[0][0] {
					t.Error("the adapter changes nothing")
				}
			}
		})
	}
}

// TestLoRARefusals names what is refused: families, sizes, modules.
func TestLoRARefusals(t *testing.T) {
	for _, c := range []struct {
		dir  string
		lora models.LoRA
		want string
	}{
		{"tiny-gpt-oss", models.LoRA{Slots: 1, Rank: 8}, "LoRA adapters of GptOssForCausalLM is not supported"},
		{"tiny-llama3-tied", models.LoRA{Slots: 1, Rank: 9}, "LoRA rank 9 (lora.maxRank)"},
		{"tiny-llama3-tied", models.LoRA{Slots: 1 << 20, Rank: 8}, "room for 1048576 LoRA adapters (lora.maxLoras)"},
	} {
		ck, err := checkpoint.Open(filepath.Join("testdata", c.dir))
		must(t, err)
		defer ck.Close()
		_, err = models.New(ck, models.Build{LoRA: c.lora})
		var refused *models.UnsupportedError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %+v: %v, want %s", c.dir, c.lora, err, c.want)
		}
	}
	ck, err := checkpoint.Open("testdata/tiny-llama3-tied")
	must(t, err)
	defer ck.Close()
	m, err := models.New(ck, models.Build{LoRA: models.LoRA{Slots: 1, Rank: 8}})
	must(t, err)
	a, err := checkpoint.ReadAdapter("testdata/lora/tiny-qwen3@patterns", 8)
	must(t, err)
	defer a.Close()
	none := func(backend.WeightID, int, []byte) error { return nil }
	if err := m.(models.Adaptable).PlaceAdapter(a, 0, none); err == nil || !strings.Contains(err.Error(), "another base model") {
		t.Errorf("an adapter of another model: %v", err)
	}
	a.Modules = a.Modules[:1]
	a.Modules[0].Module = "model.layers.0.mlp.experts.3.gate_proj"
	if err := m.(models.Adaptable).PlaceAdapter(a, 0, none); err == nil || !strings.Contains(err.Error(), "mlp.experts.3.gate_proj") {
		t.Errorf("an adapter of an expert: %v", err)
	}
}

// TestLoRAShards splits an adapter as its Linears are: on two ranks the parts of A and B are those of the
// whole, and what is not split is equal.
func TestLoRAShards(t *testing.T) {
	ck, err := checkpoint.Open("testdata/tiny-llama3-tied")
	must(t, err)
	defer ck.Close()
	a, err := checkpoint.ReadAdapter("testdata/lora/tiny-llama3-tied@all", 8)
	must(t, err)
	defer a.Close()
	place := func(shard backend.Shard) map[string]backend.WeightSpec {
		m, err := models.New(ck, models.Build{Shard: shard, Dtype: kernels.F32, LoRA: models.LoRA{Slots: 2, Rank: 8}})
		must(t, err)
		out := map[string]backend.WeightSpec{}
		must(t, m.(models.Adaptable).PlaceAdapter(a, 1, func(w backend.WeightID, row0 int, data []byte) error {
			spec := m.Weights()[w]
			if _, err := spec.RowsAt(row0, data); err != nil || row0 != spec.Rows/2 {
				t.Errorf("%s from row %d: %v", spec.Name, row0, err)
			}
			spec.Parts = []backend.Part{{Tensor: string(data)}}
			out[spec.Name] = spec
			return nil
		}))
		return out
	}
	whole, first, second := place(backend.Whole), place(backend.Shard{Rank: 0, World: 2}), place(backend.Shard{Rank: 1, World: 2})
	data := func(of map[string]backend.WeightSpec, name string) (string, int) {
		return of[name].Parts[0].Tensor, 4 * of[name].Cols
	}
	for name := range whole {
		w, width := data(whole, name)
		x, half := data(first, name)
		y, _ := data(second, name)
		split := strings.HasSuffix(name, "qkv.lora_b") || strings.HasSuffix(name, "gate_up.lora_b") || strings.HasSuffix(name, "out.lora_a") || strings.HasSuffix(name, "down.lora_a")
		if !split {
			if x != w || y != w {
				t.Errorf("%s differs between the ranks", name)
			}
			continue
		}
		if 2*half != width {
			t.Errorf("%s has rows of %d bytes on a rank, %d on one alone", name, half, width)
			continue
		}
		if strings.HasSuffix(name, "_a") {
			for r := 0; r*width < len(w); r++ {
				if got := x[r*half:(r+1)*half] + y[r*half:(r+1)*half]; got != w[r*width:(r+1)*width] {
					t.Fatalf("%s: row %d of the ranks is not that of the whole", name, r)
				}
			}
		}
	}
}
