//go:build linux && cgo && cuda

package models

import (
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/kernels/cuda/cudatest"
)

// TestGoldenCUDATowers runs the recorded towers on the emulated driver, or on a GPU. Products round their
// inputs to bf16, except those of weights in float32.
func TestGoldenCUDATowers(t *testing.T) {
	cudatest.Use(t)
	encodeTowers(t, cuda.Opener{}, backend.Settings{}, 0.02)
}
