// Package cuda is the backend for one NVIDIA GPU, alone or as a rank among others.
//
// It must not know models, requests or other backends; only package driver calls the CUDA
// driver. Start reading at Opener in this file, then layout.go (the plan), lowering.go (a
// program as launches) and device.go (the device).
//
// The layout half is plain Go and runs anywhere: how weights are packed, which kernels read
// them, a program as a list of launches, the workspace of the kernels and the memory of the
// driver. The device half needs Linux, cgo and the tag cuda: arenas, streams and those lists
// on a device. Other builds can plan but not open a device.
package cuda

import (
	"vapp.dev/engine/backend"
)

const name = "cuda"

// Opener is the backend "cuda".
type Opener struct{}

var _ backend.Opener = Opener{}

// Name returns "cuda".
func (Opener) Name() string { return name }

// Layout returns the pure half for a GPU with these facts. It needs Capability and
// TotalBytes, and SMs if known.
func (Opener) Layout(f backend.Facts, s backend.Settings) (backend.Layout, error) {
	return newLayout(f, s)
}
