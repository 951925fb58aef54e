// Package cuda is the backend for one NVIDIA GPU. Its layout half is plain Go and
// runs anywhere: how weights are packed, which kernels read them, a program as a list of
// launches, what the kernels' workspace and the driver take. Its device half is built on
// Linux with cgo and the tag cuda: arenas, streams and those lists on a device, through
// package driver. Other builds plan, and refuse to open.
package cuda

import (
	"vapp.dev/engine/backend"
)

const name = "cuda"

// Opener is the backend "cuda".
type Opener struct{}

var _ backend.Opener = Opener{}

// Name is "cuda".
func (Opener) Name() string { return name }

// Layout is the pure half for a GPU with these facts: Capability and TotalBytes
// are needed, SMs where known.
func (Opener) Layout(f backend.Facts, s backend.Settings) (backend.Layout, error) {
	return newLayout(f, s)
}
