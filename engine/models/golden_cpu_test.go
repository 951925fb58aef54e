//go:build cgo && linux

package models_test

import (
	"slices"
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
	o := cpu.Opener{}
	facts, err := o.Probe()
	must(t, err)
	for _, v := range []struct {
		name  string
		limit bound
		slow  bool
	}{{"avx512", boundFloat, false}, {"avx2", boundFloat, true}, {"generic", boundFloat, true}, {"amx", boundBF16, false}} {
		t.Run(v.name, func(t *testing.T) {
			if !slices.Contains(facts.Variants, v.name) {
				t.Skipf("not run: this machine has %v, not %s", facts.Variants, v.name)
			}
			formatErrors(t, o, backend.Settings{Variant: v.name})
			RunGoldens(t, o, backend.Settings{Variant: v.name}, v.limit, v.slow)
		})
	}
}

// boundBF16 is the bound of products of bf16 numbers summed in float32.
func boundBF16(golden string, _ kernels.Format) enginetest.GoldenBound {
	if tiny(golden) {
		return enginetest.GoldenBound{Max: 0.2, RMS: 0.03, Gap: 0.2}
	}
	return enginetest.GoldenBound{Max: 1.25, RMS: 0.13, Gap: 0.25}
}
