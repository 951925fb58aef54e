// Package cuda is the backend for one NVIDIA GPU. Its layout half, which is all
// of it so far, is plain Go and runs anywhere: how weights are packed for an
// architecture, which kernel reads them, what the kernels' workspace and the
// driver take. A device is not opened by this release: what is laid out here is
// planned only.
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

// Probe fails with backend.ErrUnsupported: plans are made for a device of the
// catalogue.
func (Opener) Probe() (backend.Facts, error) {
	return backend.Facts{}, backend.Unsupported(name, "this machine's GPU", "this release plans for GPUs by name and runs on none; give one with --gpu")
}

// Layout is the pure half for a GPU with these facts: Capability and TotalBytes
// are needed, SMs where known.
func (Opener) Layout(f backend.Facts, s backend.Settings) (backend.Layout, error) {
	return newLayout(f, s)
}

// Open fails with backend.ErrUnsupported.
func (Opener) Open(backend.Facts, backend.Settings, backend.Reservation) (backend.Device, error) {
	return nil, backend.Unsupported(name, "running", planOnly)
}

const planOnly = "the CUDA engine is planned only, this release does not run it"
