//go:build cgo && linux

package engine_test

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
)

// TestSameWeightsCPU is TestSameWeights with the C kernels, whose settings change how weights are packed.
func TestSameWeightsCPU(t *testing.T) {
	sameWeights(t, cpu.Opener{}, backend.Settings{Variant: "generic", Threads: 2}, map[string]func(*toy){
		"kernels: generic with int8 activations in place of generic": func(y *toy) { y.opts.Backend.Activations = backend.Int8Activations },
	})
}
