package models_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// TestGoldenRef checks ref against the bounds of float32 arithmetic.
func TestGoldenRef(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	RunGoldens(t, ref.Opener{}, backend.Settings{}, enginetest.BoundFloat, true)
}

// TestGoldenRebuild checks ref with rebuilt keys against the family's bounds.
func TestGoldenRebuild(t *testing.T) {
	goldenRebuild(t, ref.Opener{}, backend.Settings{}, enginetest.BoundFloat)
}

// TestFormatsRef measures Linear and Experts of ref for every weight format.
func TestFormatsRef(t *testing.T) { formatErrors(t, ref.Opener{}, backend.Settings{}) }

// TestConversions converts weights to other formats while they are packed: wider ones change no
// logit, narrower ones change all of them a little. The bounds are in units of Golden.Spread.
func TestConversions(t *testing.T) {
	// A mantissa of 3 bits rounds 32 times as coarsely as one of 8. This is twice the measured
	// difference, and about 32 times that of converting f16 to bf16.
	eight := enginetest.GoldenBound{Max: 2.4, RMS: 0.32, Gap: 0.7}
	for _, c := range []struct {
		name  string
		build models.Build
		limit enginetest.GoldenBound // zero: no bit changes
	}{
		{"tiny-mistral", models.Build{Dtype: kernels.F32}, enginetest.GoldenBound{}},
		{"tiny-mha-f16", models.Build{Dtype: kernels.F32}, enginetest.GoldenBound{}},
		{"tiny-mha-f16", models.Build{Dtype: kernels.BF16}, enginetest.GoldenBound{Max: 0.1, RMS: 0.013, Gap: 0.05}},
		{"tiny-mistral", models.Build{Quantize: kernels.F8E4M3}, eight},
		{"tiny-qwen2", models.Build{Quantize: kernels.F8E4M3, Dtype: kernels.BF16}, eight},
	} {
		g, run := readGolden(t, c.name), goldenRun{Opener: ref.Opener{}, KV: kernels.F32, Block: 16, Chunks: []int{1 << 20}}
		_, want := RunGolden(t, run, g, checkpointOf(t, c.name))
		run.Build = c.build
		tally, got := RunGolden(t, run, g, checkpointOf(t, c.name))
		if c.limit == (enginetest.GoldenBound{}) {
			sameRows(t, fmt.Sprintf("%s, %+v", c.name, c.build), got, want)
			continue
		}
		sigma := g.Spread()
		t.Logf("%s, %+v: max |Δ| %.2g σ, rms %.2g σ, gaps up to %.2g σ", c.name, c.build, float64(tally.Max)/sigma, tally.RMS()/sigma, float64(tally.FlippedGap)/sigma)
		if err := tally.Within(c.limit.Times(sigma)); err != nil {
			t.Errorf("%s, %+v: %v", c.name, c.build, err)
		}
		if slices.Equal(got[0], want[0]) {
			t.Errorf("%s, %+v: nothing was converted", c.name, c.build)
		}
	}
}

// TestGoldenShards loads a bf16 checkpoint from two files with an index. Its logits have the bits of
// those of one file.
func TestGoldenShards(t *testing.T) {
	const name = "tiny-mistral"
	dir := t.TempDir()
	config, err := os.ReadFile(filepath.Join("testdata", name, "config.json"))
	must(t, err)
	must(t, enginetest.WriteShards(dir, config, storedTensors(t, name), 2))
	files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil || len(files) != 2 || !fileExists(filepath.Join(dir, "model.safetensors.index.json")) {
		t.Fatalf("files: %v, %v", files, err)
	}
	g, run := readGolden(t, name), goldenRun{Opener: ref.Opener{}, KV: kernels.F32, Block: 16, Chunks: []int{1 << 20}}
	_, want := RunGolden(t, run, g, checkpointOf(t, name))
	tally, got := RunGolden(t, run, g, dir)
	if err := tally.Within(enginetest.BoundFloat(name, kernels.F32).Times(g.Spread())); err != nil {
		t.Error(err)
	}
	sameRows(t, "in two files", got, want)
}

// BenchmarkSmolRef measures tokens per second of SmolLM2 on ref: a prompt of 256 tokens in one
// step, then steps of one token. Every row's logits are computed.
func BenchmarkSmolRef(b *testing.B) {
	g := readGolden(b, "smollm2-chat")
	m := openGolden(b, goldenRun{Opener: ref.Opener{}, KV: kernels.F16, Block: 16, Chunks: []int{256}}, g, checkpointOf(b, "smollm2-chat"))
	for _, n := range []int{256, 1} {
		b.Run(fmt.Sprintf("%d at once", n), func(b *testing.B) {
			at := 256 - n
			for b.Loop() {
				m.step(b, g.Tokens()[at:at+n], at, 0)
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
