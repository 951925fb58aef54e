//go:build cgo && linux

package models

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
)

// TestTowersCPU runs the recorded towers with the kernels of each instruction set of this machine that
// computes in float32, on one and on three threads.
func TestTowersCPU(t *testing.T) {
	facts, err := cpu.Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range facts.Variants {
		for _, threads := range []int{1, 3} {
			if v == "generic" || v == "avx2" || v == "avx512" || v == "neon" || v == "dotprod" {
				t.Run(v, func(t *testing.T) {
					encodeTowers(t, cpu.Opener{}, backend.Settings{Variant: v, Threads: threads}, 2e-5)
				})
			}
		}
	}
}
