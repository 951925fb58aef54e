package models_test

import (
	"errors"
	"maps"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
	kernelsref "vapp.dev/kernels/ref"
)

// loraGoldens are the adapters of testdata/lora: checkpoint, "@" and what the adapter shows.
var loraGoldens = []string{"tiny-llama3-tied@all", "tiny-qwen3@patterns", "tiny-phi3@fused", "tiny-glm4@pairs", "tiny-qwen3-moe@attention",
	"tiny-gpt-oss@attention", "tiny-gemma4-e@all", "tiny-qwen35@all", "tiny-qwen3-next@mixers"}

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
				check := func(run goldenRun) [][]float32 {
					tally, rows := RunGolden(t, run, g, filepath.Join("testdata", path))
					sigma := g.Spread()
					t.Logf("slots of %v, ranks %d: max |Δ| %.2g σ, rms %.2g σ", dtype, max(1, run.Tensor), float64(tally.Max)/sigma, tally.RMS()/sigma)
					if strings.HasPrefix(name, "tiny-gemma4") {
						sigma *= 2 // its softmax is almost one-hot, which amplifies every rounding, and adapters add products
					}
					if err := tally.Within(within(path, kernels.F32).Times(sigma)); err != nil {
						t.Errorf("slots of %v, ranks %d: %v", dtype, max(1, run.Tensor), err)
					}
					return rows
				}
				with := check(run)
				if dtype == kernels.F32 && on.Name() != "cuda" {
					ranks := run
					ranks.Tensor = 2
					check(ranks)
					ranks.LoRA = ""
					_, without := RunGolden(t, ranks, g, filepath.Join("testdata", path))
					ranks.Build.LoRA = models.LoRA{}
					_, plain := RunGolden(t, ranks, g, filepath.Join("testdata", path))
					sameRows(t, "on ranks, rows without an adapter, and a model without slots", without, plain)
				}
				run.LoRA = ""
				_, without := RunGolden(t, run, g, filepath.Join("testdata", path))
				run.Build.LoRA = models.LoRA{}
				_, plain := RunGolden(t, run, g, filepath.Join("testdata", path))
				if on.Name() == "cuda" { // it stores fewer results in bf16 where adapters add to them
					nearRows(t, "rows without an adapter, and a model without slots", without, plain, float64(within(path, kernels.F32).Times(g.Spread()).Max))
				} else {
					sameRows(t, "rows without an adapter, and a model without slots", without, plain)
				}
				if with[0][0] == plain[0][0] {
					t.Error("the adapter changes nothing")
				}
			}
		})
	}
}

// nearRows checks that two runs' logits differ by at most so much.
func nearRows(t *testing.T, what string, got, want [][]float32, most float64) {
	t.Helper()
	for i, row := range got {
		for j, v := range row {
			if d := math.Abs(float64(v - want[i][j])); !(d <= most) {
				t.Errorf("%s: row %d, token %d: logits %v and %v, at most %.2g apart", what, i, j, v, want[i][j], most)
				return
			}
		}
	}
}

// TestLoRARefusals names what is refused: families, sizes, modules.
func TestLoRARefusals(t *testing.T) {
	for _, c := range []struct {
		dir  string
		lora models.LoRA
		want string
	}{
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

// TestLoRAShards places each adapter on the ranks of tensor and of pipeline parallelism: what their slots add to each
// matrix of the checkpoint is, put together, what those of one rank add.
func TestLoRAShards(t *testing.T) {
	for _, name := range loraGoldens {
		t.Run(name, func(t *testing.T) {
			whole := loraDeltas(t, name, models.Build{})
			if len(whole) == 0 {
				t.Fatal("no matrix is adapted")
			}
			for what, build := range map[string]func(rank int) models.Build{
				"tensor":   func(rank int) models.Build { return models.Build{Shard: backend.Shard{Rank: rank, World: 2}} },
				"pipeline": func(rank int) models.Build { return models.Build{Pipe: backend.Shard{Rank: rank, World: 2}} },
			} {
				first, second := loraDeltas(t, name, build(0)), loraDeltas(t, name, build(1))
				if first == nil || second == nil {
					t.Logf("%s: not divided", what)
					continue
				}
				ranks, alone := maps.Clone(first), max(len(first), len(second))
				maps.Copy(ranks, second)
				if !maps.Equal(ranks, whole) {
					t.Errorf("%s: the slots of the ranks add to %d numbers, those of one rank to %d, or they differ", what, len(ranks), len(whole))
				}
				if alone == len(whole) {
					t.Errorf("%s: a rank holds all of the adapter", what)
				}
			}
		})
	}
}

// loraAt is a number of a matrix of a checkpoint.
type loraAt struct {
	tensor   string
	row, col int
}

// loraDeltas returns what an adapter in slot 1 of a build adds to the matrices that it has; nil if the
// checkpoint is not divided so.
func loraDeltas(t *testing.T, name string, b models.Build) map[loraAt]float32 {
	t.Helper()
	path, _, _ := strings.Cut(name, "@")
	ck, err := checkpoint.Open(filepath.Join("testdata", path))
	must(t, err)
	defer ck.Close()
	a, err := checkpoint.ReadAdapter(filepath.Join("testdata/lora", name), 8)
	must(t, err)
	defer a.Close()
	const rank = 8
	b.Dtype, b.LoRA = kernels.F32, models.LoRA{Slots: 2, Rank: rank}
	m, err := models.New(ck, b)
	if refused := (*models.UnsupportedError)(nil); errors.As(err, &refused) {
		return nil
	}
	must(t, err)
	weights, data := m.Weights(), map[backend.WeightID][]float32{}
	must(t, m.(models.Adaptable).PlaceAdapter(a, 1, func(w backend.WeightID, row0 int, raw []byte) error {
		if _, err := weights[w].RowsAt(row0, raw); err != nil || row0 != weights[w].Rows/2 {
			t.Errorf("%s from row %d: %v", weights[w].Name, row0, err)
		}
		x := make([]float32, len(raw)/4)
		kernelsref.Dequantize(kernels.F32, raw, x)
		data[w] = x
		return nil
	}))
	out := map[loraAt]float32{}
	for _, w := range weights {
		if w.Adapters.Rank == 0 {
			continue
		}
		down, up, at, module := data[w.Adapters.A], data[w.Adapters.B], 0, 0
		for _, p := range w.Parts {
			for row := range p.Rows {
				for at+row >= w.Adapters.Ends[module] {
					module++
				}
				for col := range w.Cols {
					var sum float32
					for r := range rank {
						sum += up[r*w.Rows+at+row] * down[(module*rank+r)*w.Cols+col]
					}
					out[loraAt{p.Tensor, p.Row0 + row, p.Col0 + col}] = sum
				}
			}
			at += p.Rows
		}
	}
	return out
}

// TestLoRAStages names a module of a layer that no stage has; it takes those of other stages.
func TestLoRAStages(t *testing.T) {
	ck, err := checkpoint.Open("testdata/tiny-llama3-tied")
	must(t, err)
	defer ck.Close()
	m, err := models.New(ck, models.Build{Pipe: backend.Shard{Rank: 0, World: 2}, LoRA: models.LoRA{Slots: 1, Rank: 8}})
	must(t, err)
	a, err := checkpoint.ReadAdapter("testdata/lora/tiny-llama3-tied@all", 8)
	must(t, err)
	defer a.Close()
	none := func(backend.WeightID, int, []byte) error { return nil }
	must(t, m.(models.Adaptable).PlaceAdapter(a, 0, none))
	for _, module := range []string{"model.layers.99.self_attn.q_proj", "model.layers.-1.self_attn.q_proj", "model.layers.0.self_attn.other", "model.layers.x", "lm_head", ""} {
		a.Modules[0].Module = module
		if err := m.(models.Adaptable).PlaceAdapter(a, 0, none); err == nil || !strings.Contains(err.Error(), "an adapter of module "+module) {
			t.Errorf("module %q: %v", module, err)
		}
	}
}
