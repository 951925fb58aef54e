//go:build !linux || !cgo || !cuda

package cuda

import (
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
)

// Probe fails with backend.ErrUnsupported: without the native half, only devices of the
// catalogue can be planned for.
func (Opener) Probe() (backend.Facts, error) {
	return backend.Facts{}, backend.Unsupported(name, "this machine's GPU", driver.ErrNotBuilt.Error()+"; plans are made for GPUs by name, with --gpu")
}

// FindLibrary finds nothing: cuBLASLt is not called.
func FindLibrary([]driver.Info) Library {
	return Library{Absent: driver.ErrNotBuilt.Error()}
}

// Ceilings fails with backend.ErrUnsupported.
func (Opener) Ceilings(backend.Facts, int64, int) (Ceilings, error) {
	return Ceilings{}, backend.Unsupported(name, "measuring", driver.ErrNotBuilt.Error())
}

// Open fails with backend.ErrUnsupported.
func (Opener) Open(backend.Facts, backend.Settings, backend.Reservation) (backend.Device, error) {
	return nil, backend.Unsupported(name, "running", driver.ErrNotBuilt.Error())
}
