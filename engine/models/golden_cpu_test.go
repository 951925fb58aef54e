//go:build cgo && linux

package models_test

import (
	"os"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/enginetest"
)

// TestGoldenCPU checks every variant of the cpu backend against its bound: the bound of float32
// arithmetic for variants that keep activations in float32, that of bf16 tiles for the others. It
// skips and reports variants that this machine lacks.
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

// TestMediaCPU is TestMediaRef on every variant.
func TestMediaCPU(t *testing.T) {
	variants(t, func(t *testing.T, s backend.Settings, limit bound, _ bool) { runMedia(t, cpu.Opener{}, s, limit, true) })
}

// TestGoldenRanksCPU is TestGoldenRanks on the machine's best variant, with VAPP_GOLDEN=all on every one.
func TestGoldenRanksCPU(t *testing.T) {
	facts, err := cpu.Opener{}.Probe()
	must(t, err)
	variants(t, func(t *testing.T, s backend.Settings, limit bound, _ bool) {
		if s.Variant != facts.Variants[0] && os.Getenv("VAPP_GOLDEN") != "all" {
			t.Skip("not run: the best variant runs; VAPP_GOLDEN=all runs all of them")
		}
		runRanks(t, cpu.Opener{}, s, limit)
	})
}

// variants runs a test on each variant, with its bound and whether it is slow.
func variants(t *testing.T, test func(*testing.T, backend.Settings, bound, bool)) {
	facts, err := cpu.Opener{}.Probe()
	must(t, err)
	for _, v := range []struct {
		name  string
		limit bound
		slow  bool
	}{{"avx512", enginetest.BoundFloat, false}, {"avx2", enginetest.BoundFloat, true}, {"generic", enginetest.BoundFloat, true}, {"avx512bf16", enginetest.BoundBF16, false}, {"amx", enginetest.BoundBF16, false},
		{"neon", enginetest.BoundFloat, true}, {"dotprod", enginetest.BoundBF16, true}, {"i8mm", enginetest.BoundBF16, false}} {
		t.Run(v.name, func(t *testing.T) {
			if !slices.Contains(facts.Variants, v.name) {
				t.Skipf("not run: this machine has %v, not %s", facts.Variants, v.name)
			}
			if testing.Short() && v.name != facts.Variants[0] {
				t.Skip("not run: -short takes the best variant alone, make test all of them")
			}
			test(t, backend.Settings{Variant: v.name}, v.limit, v.slow)
		})
	}
}
