//go:build !cgo || !linux

package cpu

import "vapp.dev/engine/backend"

// Open is refused: this binary has the layout half only.
func (Opener) Open(backend.Facts, backend.Settings, backend.Reservation) (backend.Device, error) {
	return nil, backend.Unsupported(name, "opening a device", "this binary was built without cgo, or not for Linux; it plans but does not run")
}
