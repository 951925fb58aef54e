//go:build cgo && linux

package engine_test

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/kernels"
)

// TestFamiliesCPU is TestFamilies on every kind of kernels that this machine has.
func TestFamiliesCPU(t *testing.T) {
	facts, err := cpu.Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range facts.Variants {
		t.Run(v, func(t *testing.T) { families(t, cpu.Opener{}, backend.Settings{Variant: v}) })
	}
}

// TestOwnHeadCPU is TestOwnHead on every kind of kernels that this machine has.
func TestOwnHeadCPU(t *testing.T) {
	facts, err := cpu.Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range facts.Variants {
		t.Run(v, func(t *testing.T) { ownHead(t, cpu.Opener{}, backend.Settings{Variant: v}) })
	}
}

// TestPoisonCPU is TestPoison on every kind of kernels that this machine has, with
// pages in the formats that they read.
func TestPoisonCPU(t *testing.T) {
	facts, err := cpu.Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	formats := []kernels.Format{kernels.F32, kernels.BF16, kernels.F8E4M3} // 8-bit floats have no infinity
	for _, v := range facts.Variants {
		if v == "generic" { // slow
			t.Run(v, func(t *testing.T) { poisoned(t, cpu.Opener{}, backend.Settings{Variant: v}, formats...) })
			continue
		}
		for _, f := range formats {
			t.Run(v+"/"+f.String(), func(t *testing.T) { poisoned(t, cpu.Opener{}, backend.Settings{Variant: v}, f) })
		}
	}
}
