// Package ref is the reference backend: plain Go on Go's heap, where each op is a call of
// kernels/ref. It is slow, simple and runs wherever Go runs.
//
// It must not know another backend or share code with one. Start reading at Opener in this
// file, then compile.go, where ops become calls of kernels/ref.
//
// A row's result depends on nothing but the row: ops are distributed over a few goroutines by
// rows, features or heads, never within a sum.
package ref

import (
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/host"
)

const name = "ref"

// Opener is the backend "ref".
type Opener struct{}

var _ backend.Opener = Opener{}

// Name returns "ref".
func (Opener) Name() string { return name }

// Probe returns the facts of this machine; the one variant is "go".
func (Opener) Probe() (backend.Facts, error) {
	f, err := host.Probe(name)
	f.Variants = []string{"go"}
	return f, err
}

// Layout returns the pure half.
func (Opener) Layout(f backend.Facts, s backend.Settings) (backend.Layout, error) {
	return newLayout(f, s)
}

// Open allocates the arenas of r on Go's heap. It rejects more memory than the machine has,
// because Go would abort the process.
func (Opener) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	l, err := newLayout(f, s)
	if err != nil {
		return nil, err
	}
	var sum int64
	for a, n := range r.Arenas {
		if backend.Arena(a) != backend.Weights || s.Weights == nil {
			sum += n
		}
	}
	if f.TotalBytes > 0 && sum > f.TotalBytes {
		return nil, short("the arenas", sum, f.TotalBytes)
	}
	return open(l, s, r)
}
