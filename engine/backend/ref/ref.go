// Package ref is the slow and obviously right device: plain Go on Go's own heap,
// every op a call of kernels/ref.
//
// It runs wherever Go runs. A row's result depends on nothing but the row: ops are
// spread over a few goroutines by rows, features or heads, never inside a sum.
package ref

import (
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/host"
)

const name = "ref"

// Opener is the backend "ref".
type Opener struct{}

var _ backend.Opener = Opener{}

// Name is "ref".
func (Opener) Name() string { return name }

// Probe returns the facts of this machine; the one variant is "go".
func (Opener) Probe() (backend.Facts, error) {
	f, err := host.Probe(name)
	f.Variants = []string{"go"}
	return f, err
}

// Layout is the pure half.
func (Opener) Layout(f backend.Facts, s backend.Settings) (backend.Layout, error) {
	return newLayout(f, s)
}

// Open takes the arenas of r from Go's heap; more than the machine has is
// refused, because Go cannot refuse it.
func (Opener) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	l, err := newLayout(f, s)
	if err != nil {
		return nil, err
	}
	var sum int64
	for _, n := range r.Arenas {
		sum += n
	}
	if f.TotalBytes > 0 && sum > f.TotalBytes {
		return nil, short("the arenas", sum, f.TotalBytes)
	}
	return open(l, r)
}
