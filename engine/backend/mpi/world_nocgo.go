//go:build !cgo || !linux

package mpi

import (
	"time"

	"vapp.dev/engine/backend"
)

// World is this process's place in MPI_COMM_WORLD. This binary has none.
type World struct{}

// Open returns an error: this binary cannot load libraries.
func Open(Options) (*World, error) { return nil, unsupported() }

func unsupported() error {
	return backend.Unsupported(name, "several ranks", "this binary was built without cgo, or not for Linux")
}

// The methods of a World return zeros or the error of Open, which returns no World.

func (*World) Rank() int                             { return 0 }
func (*World) Size() int                             { return 0 }
func (*World) Library() string                       { return "" }
func (*World) Broadcast([]byte) error                { return unsupported() }
func (*World) Group(int, int) (backend.Group, error) { return nil, unsupported() }
func (*World) Close() error                          { return unsupported() }
func (*World) TimeAllReduce(int, int) (time.Duration, time.Duration, error) {
	return 0, 0, unsupported()
}
