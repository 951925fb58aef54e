//go:build !linux || !cgo

package main

import (
	"vapp.dev/engine/backend"
	"vapp.dev/engine/speed"
)

// measureBase refuses: the CPU kernels need cgo and Linux.
func measureBase(backend.Facts) (speed.Rates, error) {
	return speed.Rates{}, backend.Unsupported("cpu", "measured rates", "this binary has no CPU kernels: they need Linux and cgo")
}

// readMeter returns the same error.
func readMeter() (read func() float64, done func(), err error) {
	return nil, nil, backend.Unsupported("cpu", "measured rates", "this binary has no CPU kernels: they need Linux and cgo")
}
