//go:build cgo && linux

package engine_test

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
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
