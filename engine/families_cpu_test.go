//go:build cgo && linux

package engine_test

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/kernels"
)

// variantsHere returns the kinds of kernels that this machine has, with -short the best alone.
func variantsHere(t *testing.T) []string {
	t.Helper()
	facts, err := cpu.Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		return facts.Variants[:1]
	}
	return facts.Variants
}

// best says that of all that runs here this is what people get: every way of running is
// shown on it.
func best(t *testing.T, on backend.Opener, s backend.Settings) bool {
	return on.Name() == "cpu" && s.Variant == variantsHere(t)[0]
}

// TestFamiliesCPU is TestFamilies on every kind of kernels that this machine has.
func TestFamiliesCPU(t *testing.T) {
	for _, v := range variantsHere(t) {
		t.Run(v, func(t *testing.T) { families(t, cpu.Opener{}, backend.Settings{Variant: v}) })
	}
}

// TestOwnHeadCPU is TestOwnHead on every kind of kernels that this machine has.
func TestOwnHeadCPU(t *testing.T) {
	for _, v := range variantsHere(t) {
		t.Run(v, func(t *testing.T) { ownHead(t, cpu.Opener{}, backend.Settings{Variant: v}) })
	}
}

// TestPoisonCPU is TestPoison on every kind of kernels that this machine has, with
// pages in the formats that they read.
func TestPoisonCPU(t *testing.T) {
	formats := []kernels.Format{kernels.F32, kernels.BF16, kernels.F8E4M3} // 8-bit floats have no infinity
	for _, v := range variantsHere(t) {
		if v == "generic" { // slow
			t.Run(v, func(t *testing.T) { poisoned(t, cpu.Opener{}, backend.Settings{Variant: v}, formats...) })
			continue
		}
		for _, f := range formats {
			t.Run(v+"/"+f.String(), func(t *testing.T) { poisoned(t, cpu.Opener{}, backend.Settings{Variant: v}, f) })
		}
	}
}

// TestPoolCPU is TestPool on every kind of kernels that this machine has.
func TestPoolCPU(t *testing.T) {
	for _, v := range variantsHere(t) {
		t.Run(v, func(t *testing.T) { pools(t, cpu.Opener{}, backend.Settings{Variant: v}) })
	}
}

// TestPoolGoldenCPU is TestPoolGolden on every kind of kernels that this machine has.
func TestPoolGoldenCPU(t *testing.T) {
	for _, v := range variantsHere(t) {
		bound := 2e-5
		if roundsToBF16(v) {
			bound = 0.15 // products of bf16
		}
		t.Run(v, func(t *testing.T) { poolGoldens(t, cpu.Opener{}, backend.Settings{Variant: v}, bound) })
	}
}
