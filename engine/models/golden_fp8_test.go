package models_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
	"vapp.dev/kernels"
)

// TestGoldenFP8 checks that ref, with activations in fp8, has transformers' logits, recorded with
// inputs rounded in the same groups of 128 columns; chunks of any size give the same bits.
func TestGoldenFP8(t *testing.T) {
	for name := range goldens {
		if strings.HasSuffix(name, x8) {
			t.Run(name, func(t *testing.T) { fp8Golden(t, name, ref.Opener{}, boundFP8, true) })
		}
	}
}

// boundFP8 is twice the difference between ref and cuda: a small difference in a number can move it
// to the neighbouring code, which is a step in the logits.
var boundFP8 = enginetest.GoldenBound{Max: 0.9, RMS: 0.08, Gap: 0.16}

// fp8Golden checks a backend with fp8 activations against a bound, and checks that without them the
// backend exceeds the bound.
func fp8Golden(t *testing.T, name string, o backend.Opener, limit enginetest.GoldenBound, bits bool) {
	facts, err := o.Probe()
	must(t, err)
	if _, err := o.Layout(facts, backend.Settings{Activations: backend.FP8Activations}); errors.Is(err, backend.ErrUnsupported) {
		t.Skipf("not run: %v", err)
	}
	g := readGolden(t, name)
	sigma := g.Spread()
	run := goldenRun{Opener: o, KV: kernels.F32, Block: 16, Chunks: []int{1 << 20}}
	within := func() (rows [][]float32, err error) {
		tally, rows := RunGolden(t, run, g, checkpointOf(t, name))
		t.Logf("activations %q, chunks of %v: max |Δ| %.2g σ, rms %.2g σ, gaps up to %.2g σ", run.Settings.Activations, run.Chunks,
			float64(tally.Max)/sigma, tally.RMS()/sigma, float64(tally.FlippedGap)/sigma)
		return rows, tally.Within(limit.Times(sigma))
	}
	if _, err = within(); err == nil {
		t.Error("what is not rounded is within the bound")
	}
	run.Settings.Activations = backend.FP8Activations
	want, err := within()
	if err != nil {
		t.Error(err)
	}
	run.Chunks, run.Block = []int{7, 1, 33, 16}, 32
	got, err := within()
	if err != nil {
		t.Error(err)
	}
	if bits {
		sameRows(t, fmt.Sprintf("in chunks of %v", run.Chunks), got, want)
	}
}
