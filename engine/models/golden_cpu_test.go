//go:build cgo && linux

package models_test

import (
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/enginetest"
	"vapp.dev/kernels"
)

// TestGoldenCPU holds every variant of the cpu backend to its bound: those that
// keep activations in float32 to the bound of float32 arithmetic, the tiles of
// bf16 to theirs. A variant that this machine lacks is not run, and says so.
func TestGoldenCPU(t *testing.T) {
	variants(t, func(t *testing.T, s backend.Settings, limit bound, slow bool) {
		formatErrors(t, cpu.Opener{}, s)
		RunGoldens(t, cpu.Opener{}, s, limit, slow)
	})
}

// TestGoldenRebuildCPU is TestGoldenRebuild on every variant.
func TestGoldenRebuildCPU(t *testing.T) {
	variants(t, func(t *testing.T, s backend.Settings, limit bound, _ bool) { goldenRebuild(t, cpu.Opener{}, s, limit) })
}

// variants runs a test on each variant, with its bound and whether it is slow.
func variants(t *testing.T, test func(*testing.T, backend.Settings, bound, bool)) {
	facts, err := cpu.Opener{}.Probe()
	must(t, err)
	for _, v := range []struct {
		name  string
		limit bound
		slow  bool
	}{{"avx512", boundFloat, false}, {"avx2", boundFloat, true}, {"generic", boundFloat, true}, {"avx512bf16", boundBF16, false}, {"amx", boundBF16, false}} {
		t.Run(v.name, func(t *testing.T) {
			if !slices.Contains(facts.Variants, v.name) {
				t.Skipf("not run: this machine has %v, not %s", facts.Variants, v.name)
			}
			test(t, backend.Settings{Variant: v.name}, v.limit, v.slow)
		})
	}
}

// boundBF16 is the bound of products of bf16 numbers summed in float32, in any K/V format:
// twice what the oracle differs by when it rounds activations so.
func boundBF16(golden string, _ kernels.Format) enginetest.GoldenBound {
	switch {
	case rounding(golden):
		return boundRounding
	case sharp(golden):
		return enginetest.GoldenBound{Max: 1.4, RMS: 0.13, Gap: 0.4}
	case sharp(strings.TrimSuffix(golden, "-moe")):
		return enginetest.GoldenBound{Max: 6.5, RMS: 0.9, Gap: 3.2}
	case mixture(golden):
		return enginetest.GoldenBound{Max: 2.2, RMS: 0.08, Gap: 0.2}
	case recurrent(golden):
		return enginetest.GoldenBound{Max: 0.95, RMS: 0.06, Gap: 0.26}
	case tiny(golden):
		return enginetest.GoldenBound{Max: 0.2, RMS: 0.03, Gap: 0.2}
	}
	return enginetest.GoldenBound{Max: 1.25, RMS: 0.13, Gap: 0.25}
}
