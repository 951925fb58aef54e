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

// RunGoldens runs the golden files on a backend and holds them to bounds: every
// small checkpoint in every K/V format, each also in other chunks and on other
// pages, which must give the same bits; then SmolLM2. Where that takes long, it
// runs with f32 pages alone; VAPP_GOLDEN=all runs everything.
func RunGoldens(t *testing.T, o backend.Opener, s backend.Settings, limit bound, slow bool) {
	for name := range goldens {
		if !tiny(name) {
			continue
		}
		for _, kv := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
			if gguf(name) && kv != kernels.F32 {
				continue // what rounded K and V do is shown by the others
			}
			t.Run(fmt.Sprintf("%s/%v", name, kv), func(t *testing.T) {
				want := runBound(t, goldenRun{Opener: o, Settings: s, KV: kv, Block: 16, Chunks: []int{1 << 20}}, name, limit)
				for _, other := range []goldenRun{
					{Opener: o, Settings: s, KV: kv, Block: 16, Chunks: []int{7, 1, 33, 16}},
					{Opener: o, Settings: s, KV: kv, Block: 32, Chunks: []int{1}},
				} {
					if gguf(name) && other.Block == 32 {
						continue
					}
					sameRows(t, fmt.Sprintf("in chunks of %v", other.Chunks), runBound(t, other, name, limit), want)
				}
			})
		}
	}
	for _, name := range []string{"smollm2-chat", "smollm2-prose", "smollm2-code"} {
		for _, kv := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
			t.Run(fmt.Sprintf("%s/%v", name, kv), func(t *testing.T) {
				if slow && os.Getenv("VAPP_GOLDEN") != "all" && (kv != kernels.F32 || testing.Short()) {
					t.Skip("not run: it is slow on this backend; VAPP_GOLDEN=all runs it")
				}
				runBound(t, goldenRun{Opener: o, Settings: s, KV: kv, Block: 16, Chunks: []int{256}}, name, limit)
			})
		}
	}
}

// goldenRebuild: logits stay inside the family's bounds where pages hold of the full
// layers' keys only the part that turns, and the rest is made from values; they do not
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
			t.Errorf("%v: the logits are those of whole keys: %v", kv, same) // float32 keys are the rebuilt ones
		}
	}
}

// runBound runs a golden file, checks its bound and returns the logits.
func runBound(t *testing.T, r goldenRun, name string, limit bound) [][]float32 {
	t.Helper()
	g, unit, sigma := readGolden(t, name), "", 1.0
	if tiny(name) {
		unit, sigma = " σ", g.Spread()
	}
	tally, rows := RunGolden(t, r, g, checkpointOf(t, name))
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

// boundFloat is the bound of float32 arithmetic. Where K and V are rounded, a token
// of a mixture may be sent to another expert than in the reference: a step in its logits.
func boundFloat(golden string, kv kernels.Format) enginetest.GoldenBound {
	switch {
	case rounding(golden):
		return boundRounding
	case sharp(golden):
		return map[kernels.Format]enginetest.GoldenBound{
			kernels.F32: {Max: 2e-4, RMS: 1e-5, Gap: 1e-4}, kernels.F16: {Max: 0.1, RMS: 0.01, Gap: 0.02}, kernels.BF16: {Max: 0.6, RMS: 0.07, Gap: 0.15},
		}[kv]
	case sharp(strings.TrimSuffix(golden, "-moe")):
		return map[kernels.Format]enginetest.GoldenBound{
			kernels.F32: {Max: 3e-4, RMS: 2.5e-5, Gap: 1e-4}, kernels.F16: {Max: 4, RMS: 0.3, Gap: 1.2}, kernels.BF16: {Max: 5, RMS: 0.6, Gap: 3},
		}[kv]
	case mixture(golden):
		return map[kernels.Format]enginetest.GoldenBound{
			kernels.F32: {Max: 1e-4, RMS: 1e-5, Gap: 1e-4}, kernels.F16: {Max: 0.25, RMS: 0.01, Gap: 0.05}, kernels.BF16: {Max: 1.2, RMS: 0.05, Gap: 0.25},
		}[kv]
	case recurrent(golden):
		return map[kernels.Format]enginetest.GoldenBound{
			kernels.F32: {Max: 5e-4, RMS: 5e-5, Gap: 5e-4}, kernels.F16: {Max: 0.03, RMS: 0.0015, Gap: 0.01}, kernels.BF16: {Max: 0.2, RMS: 0.013, Gap: 0.05},
		}[kv]
	case tiny(golden):
		return map[kernels.Format]enginetest.GoldenBound{
			kernels.F32: {Max: 1e-4, RMS: 1e-5, Gap: 1e-4}, kernels.F16: {Max: 0.01, RMS: 0.0015, Gap: 0.01}, kernels.BF16: {Max: 0.1, RMS: 0.013, Gap: 0.05},
		}[kv]
	}
	return map[kernels.Format]enginetest.GoldenBound{
		kernels.F32: {Max: 1e-3, RMS: 1e-4, Gap: 1e-3}, kernels.F16: {Max: 0.1, RMS: 0.006, Gap: 0.02}, kernels.BF16: {Max: 1, RMS: 0.05, Gap: 0.05},
	}[kv]
}

// recurrent tells checkpoints with delta nets. Their output is normalised by head: of
// the first tokens, whose state holds little, it is the sign of a product that may be
// near zero, and bf16 inputs of the convolution flip it.
func recurrent(golden string) bool { return strings.HasPrefix(golden, "tiny-qwen35") }

// sharp tells checkpoints whose queries and keys are normalised and not scaled: on
// random weights their softmax is close to a choice, which rounded keys move. Six such
// layers one after the other, and experts that are chosen by the result, leave little of
// what 16-bit pages would show; the F32 bound is the one that proves the forward.
func sharp(golden string) bool { return golden == "tiny-gemma4" }

// rounding tells checkpoints whose activations are rounded to int8: what is off by a little
// may come to the other side of a code's border, which is a step in the logits.
func rounding(golden string) bool { return golden == "tiny-w8a8" }

// boundRounding is about twice what rounded K and V, or products of bf16, make of such steps.
var boundRounding = enginetest.GoldenBound{Max: 0.35, RMS: 0.06, Gap: 0.15}

// gguf tells checkpoints in llama.cpp's names and blocks, of widths that its K-quants need.
func gguf(golden string) bool { return strings.HasSuffix(golden, "-gguf") }

// mixture tells checkpoints with experts.
func mixture(golden string) bool {
	return strings.HasPrefix(golden, "tiny-gpt-oss") || golden == "tiny-gemma4-moe"
}
