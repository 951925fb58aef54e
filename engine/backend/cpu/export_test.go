//go:build cgo && linux

package cpu

import (
	"vapp.dev/engine/backend"
	kcpu "vapp.dev/kernels/cpu"
)

// SoftTiles is the backend with emulated tiles for the attention of amx.
type SoftTiles struct{ Opener }

// Open opens a device like Opener.
func (SoftTiles) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	l, err := newLayout(f, s)
	if err != nil {
		return nil, err
	}
	l.attention = kcpu.SoftAMX
	return l.open(s, r)
}

// RestFor is the pool's rule for how long a thread sleeps.
var RestFor = restFor
