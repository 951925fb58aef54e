// Package ref is the slow and obviously right device: plain Go on Go's own heap,
// every op a call of kernels/ref.
//
// It runs wherever Go runs. A row's result depends on nothing but the row: ops are
// spread over a few goroutines by rows, features or heads, never inside a sum.
package ref

import (
	"runtime"

	"vapp.dev/engine/backend"
)

const name = "ref"

// Opener is the backend "ref".
type Opener struct{}

var _ backend.Opener = Opener{}

// Name is "ref".
func (Opener) Name() string { return name }

// Probe says what Go knows: CPUs and page size. Memory is not probed.
func (Opener) Probe() (backend.Facts, error) {
	return backend.Facts{
		Backend: name, Device: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.GOMAXPROCS(0),
		Variants: []string{"go"}, PageBytes: page, Measured: true,
	}, nil
}

// Layout is the pure half.
func (Opener) Layout(f backend.Facts, s backend.Settings) (backend.Layout, error) {
	return newLayout(f, s)
}

// Open takes the arenas of r from Go's heap.
func (Opener) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	l, err := newLayout(f, s)
	if err != nil {
		return nil, err
	}
	return open(l, r)
}
