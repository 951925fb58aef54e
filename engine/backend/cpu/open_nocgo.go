//go:build !cgo || !linux

package cpu

import (
	"time"

	"vapp.dev/engine/backend"
)

const why = "this binary was built without cgo, or not for Linux; it plans but does not run"

// Open returns an error: this binary has only the layout half.
func (Opener) Open(backend.Facts, backend.Settings, backend.Reservation) (backend.Device, error) {
	return nil, backend.Unsupported(name, "opening a device", why)
}

// MeasureLimits returns the same error.
func MeasureLimits(int, time.Duration) (Limits, error) {
	return Limits{}, backend.Unsupported(name, "measuring limits", why)
}
