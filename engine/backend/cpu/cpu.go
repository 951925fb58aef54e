// Package cpu is the backend that computes on the machine's own processors: C
// kernels of kernels/cpu, run by a pool of pinned threads over arenas that are
// mapped once.
//
// Its layout half is plain Go and runs anywhere; opening a device needs cgo and
// Linux. What a step costs beside the kernels is one call into C: the pool has
// the program as a list, and its threads take the parts of one op after the other.
package cpu

import (
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/host"
	kcpu "vapp.dev/kernels/cpu"
)

const name = "cpu"

// Opener is the backend "cpu".
type Opener struct{}

var _ backend.Opener = Opener{}

// Name is "cpu".
func (Opener) Name() string { return name }

// Probe returns the facts of this machine. Variants are the instruction sets that
// processor and system offer, the best first; "generic" is always the last. It asks the system
// for the tile registers of AMX, once for the process.
func (Opener) Probe() (backend.Facts, error) {
	f, err := host.Probe(name)
	f.Variants = kcpu.Variants()
	if refused := kcpu.AMXRefused(); refused != nil {
		f.NoAMX = refused.Error()
	}
	return f, err
}

// Layout is the pure half for a machine with these facts. A Variant in Settings
// that the facts do not list is refused with backend.ErrUnsupported.
func (Opener) Layout(f backend.Facts, s backend.Settings) (backend.Layout, error) {
	return newLayout(f, s)
}
