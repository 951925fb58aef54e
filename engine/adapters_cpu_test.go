//go:build cgo && linux

package engine_test

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
)

// TestAdaptersCPU is TestAdapters on every variant of this machine.
func TestAdaptersCPU(t *testing.T) {
	facts, err := cpu.Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range facts.Variants {
		t.Run(v, func(t *testing.T) { adapterTwins(t, cpu.Opener{}, backend.Settings{Variant: v}) })
	}
}
