//go:build cgo && linux

package cpu

import (
	"vapp.dev/engine/backend"
	kcpu "vapp.dev/kernels/cpu"
)

// SoftTiles is the backend with the attention of amx on tiles in memory.
type SoftTiles struct{ Opener }

// Open is Opener's.
func (SoftTiles) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	l, err := newLayout(f, s)
	if err != nil {
		return nil, err
	}
	l.attention = kcpu.SoftAMX
	return l.open(s, r)
}

// RestFor is the pool's rule of how long a thread sleeps for others.
var RestFor = restFor
