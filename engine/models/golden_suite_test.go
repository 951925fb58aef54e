package models_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// RunGoldens runs the golden files of the small checkpoints and of SmolLM2 on a backend and checks
// their bounds. On a slow backend it runs only the beginning of one SmolLM2 text with f32 pages;
// VAPP_GOLDEN=all runs everything.
func RunGoldens(t *testing.T, o backend.Opener, s backend.Settings, limit bound, slow bool) {
	runTiny(t, o, s, limit, true)
	if testing.Short() {
		t.Log("SmolLM2 not run: -short leaves it out, make test runs it")
		return
	}
	runSmol(t, o, s, limit, slow)
}

// runTiny runs every small checkpoint.
func runTiny(t *testing.T, o backend.Opener, s backend.Settings, limit bound, bits bool) {
	for name := range goldens {
		if enginetest.Tiny(name) && !strings.HasSuffix(name, x8) && enginetest.RunsOn(name, o.Name()) {
			t.Run(name, func(t *testing.T) { tinyGolden(t, name, o, s, limit, bits) })
		}
	}
}

// tinyGolden runs a small checkpoint in every K/V format. It repeats each run with other chunks and
// pages, which must give the same bits if the backend guarantees that.
func tinyGolden(t *testing.T, name string, o backend.Opener, s backend.Settings, limit bound, bits bool) {
	for _, kv := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
		if (gguf(name) || brief(name) || s.Variant == "generic" && !all()) && kv != kernels.F32 {
			continue // the other checkpoints and variants cover rounded K and V
		}
		t.Run(kv.String(), func(t *testing.T) {
			want := runBound(t, goldenRun{Opener: o, Settings: s, KV: kv, Block: 16, Chunks: []int{1 << 20}}, name, limit)
			for _, other := range []goldenRun{
				{Opener: o, Settings: s, KV: kv, Block: 16, Chunks: []int{7, 1, 33, 16}},
				{Opener: o, Settings: s, KV: kv, Block: 32, Chunks: []int{1}},
			} {
				if (gguf(name) || brief(name)) && other.Block == 32 {
					continue
				}
				if got := runBound(t, other, name, limit); bits {
					sameRows(t, fmt.Sprintf("in chunks of %v", other.Chunks), got, want)
				}
			}
		})
	}
}

// runSmol runs SmolLM2's texts.
func runSmol(t *testing.T, o backend.Opener, s backend.Settings, limit bound, slow bool) {
	for _, name := range []string{"smollm2-chat", "smollm2-prose", "smollm2-code"} {
		t.Run(name, func(t *testing.T) { smolGolden(t, name, o, s, limit, slow) })
	}
}

// smolGolden runs a text in every K/V format.
func smolGolden(t *testing.T, name string, o backend.Opener, s backend.Settings, limit bound, slow bool) {
	for _, kv := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
		t.Run(kv.String(), func(t *testing.T) {
			run := goldenRun{Opener: o, Settings: s, KV: kv, Block: 16, Chunks: []int{256}}
			if slow && !all() {
				run.Rows = 96
			}
			if chat := name == "smollm2-chat"; !all() && kv != kernels.F32 && !chat {
				t.Skip("not run: the chat has rounded K and V; VAPP_GOLDEN=all runs it")
			} else if !all() && slow && (kv != kernels.F32 || !chat || s.Variant != "avx2" || testing.Short()) {
				t.Skip("not run: it is slow on this backend; VAPP_GOLDEN=all runs it")
			}
			runBound(t, run, name, limit)
		})
	}
}

// goldenRebuild checks that logits stay within the family's bounds when pages store only the
// rotated part of full layers' keys and the rest is rebuilt from values, and that they do not
// depend on chunks.
func goldenRebuild(t *testing.T, o backend.Opener, s backend.Settings, limit bound) {
	const name = "tiny-gemma4"
	for _, kv := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
		run := goldenRun{Opener: o, Settings: s, KV: kv, Block: 16, Chunks: []int{1 << 20}, Build: models.Build{Rebuild: true}}
		got := runBound(t, run, name, limit)
		run.Chunks, run.Block = []int{7, 1, 33, 16}, 32
		sameRows(t, fmt.Sprintf("%v in chunks of %v", kv, run.Chunks), runBound(t, run, name, limit), got)
		run.Build.Rebuild = false
		whole := runBound(t, run, name, limit)
		if same := slices.EqualFunc(got, whole, slices.Equal[[]float32]); same != (kv == kernels.F32) {
			t.Errorf("%v: the logits are those of whole keys: %v", kv, same) // in float32 the stored keys equal the rebuilt ones
		}
	}
}

// runBound runs a golden file, checks its bound and returns the logits.
func runBound(t *testing.T, r goldenRun, name string, limit bound) [][]float32 {
	t.Helper()
	path := checkpointOf(t, name) // a bundle without the checkpoint lacks its golden file too
	g, unit, sigma := readGolden(t, name), "", 1.0
	if enginetest.Tiny(name) {
		unit, sigma = " σ", g.Spread()
	}
	tally, rows := RunGolden(t, r, g, path)
	if len(rows) == 0 && r.Pipe > 1 {
		return nil // this process has another stage than the last
	}
	t.Logf("chunks of %v: max |Δ| %.2g%s, rms %.2g%s, %d of %d rows flipped, at gaps up to %.2g%s", r.Chunks,
		float64(tally.Max)/sigma, unit, tally.RMS()/sigma, unit, tally.Flips, tally.Rows, float64(tally.FlippedGap)/sigma, unit)
	if err := tally.Within(limit(name, r.KV).Times(sigma)); err != nil {
		t.Error(err)
	}
	keep(t, r, name, g, tally, limit(name, r.KV), sigma)
	return rows
}

// sameRows compares logits bit for bit.
func sameRows(t *testing.T, what string, got, want [][]float32) {
	t.Helper()
	for i := range want {
		for id, x := range want[i] {
			if math.Float32bits(got[i][id]) != math.Float32bits(x) {
				t.Fatalf("%s: row %d, token %d: logit %v, in one chunk %v", what, i, id, got[i][id], x)
			}
		}
	}
}

// brief reports whether a checkpoint runs with F32 pages and one other way of chunks only: those of
// tiny_recipes.py and most of tiny_moe.py, which have the ops of other checkpoints in other orders.
func brief(golden string) bool {
	switch goldens[golden] {
	case [2]int{72, 16}:
		return true
	case [2]int{64, 40}:
		return golden != "tiny-qwen2-moe" && golden != "tiny-glm4-moe"
	}
	return false
}

// all reports whether everything runs, on the slow backends and variants too.
func all() bool { return os.Getenv("VAPP_GOLDEN") == "all" }

// gguf reports whether a checkpoint has llama.cpp's names and blocks, and widths that its K-quants
// need.
func gguf(golden string) bool { return strings.HasSuffix(golden, "-gguf") }
