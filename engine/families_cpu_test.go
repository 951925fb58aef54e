//go:build cgo && linux

package engine_test

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/kernels"
)

// variantsHere returns the kernel variants that this machine supports, with -short only the best.
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

// best reports whether this variant is this machine's default. Every way of axes runs on it.
func best(t *testing.T, on backend.Opener, s backend.Settings) bool {
	return on.Name() == "cpu" && s.Variant == variantsHere(t)[0]
}

// TestFamiliesCPU is TestFamilies on every kernel variant of this machine.
func TestFamiliesCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	for _, v := range variantsHere(t) {
		t.Run(v, func(t *testing.T) { families(t, cpu.Opener{}, backend.Settings{Variant: v}) })
	}
}

// TestMTPCPU is TestMTP on every kernel variant of this machine.
func TestMTPCPU(t *testing.T) {
	for _, v := range variantsHere(t) {
		t.Run(v, func(t *testing.T) { ownHead(t, cpu.Opener{}, backend.Settings{Variant: v}) })
	}
}

// TestPoisonCPU is TestPoison on every kernel variant of this machine, with all KV formats that
// the kernels support.
func TestPoisonCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
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

// TestPoolingCPU is TestPooling on every kernel variant of this machine.
func TestPoolingCPU(t *testing.T) {
	for _, v := range variantsHere(t) {
		t.Run(v, func(t *testing.T) { pools(t, cpu.Opener{}, backend.Settings{Variant: v}) })
	}
}

// TestPoolingGoldenCPU is TestPoolingGolden on every kernel variant of this machine.
func TestPoolingGoldenCPU(t *testing.T) {
	for _, v := range variantsHere(t) {
		bound := 2e-5
		if roundsToBF16(v) {
			bound = 0.15 // products of bf16
		}
		t.Run(v, func(t *testing.T) { poolGoldens(t, cpu.Opener{}, backend.Settings{Variant: v}, bound) })
	}
}
