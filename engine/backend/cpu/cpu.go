// Package cpu is the backend that computes on the host's CPUs. The C kernels of kernels/cpu
// run on a pool of pinned threads, over arenas that are mapped once.
//
// It must not know models, requests or other backends. Start reading at Opener in this file,
// then Open in device.go, Compile in compile.go and Launch in launch.go.
//
// The layout half is plain Go and runs anywhere; opening a device needs cgo and Linux. A step
// costs one call into C besides the kernels: the pool has the program as a list of phases,
// and its threads run the parts of one phase after the other.
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

// Name returns "cpu".
func (Opener) Name() string { return name }

// Probe returns the facts of this machine. Variants are the instruction sets that the
// processor and the system support, the best first; "generic" is always last. Probe requests
// AMX tile registers from the system once for the process.
func (Opener) Probe() (backend.Facts, error) {
	f, err := host.Probe(name)
	f.Variants = kcpu.Variants()
	if refused := kcpu.AMXRefused(); refused != nil {
		f.NoAMX = refused.Error()
	}
	return f, err
}

// Layout returns the pure half for a machine with these facts. A Variant in Settings that the
// facts do not list gives backend.ErrUnsupported.
func (Opener) Layout(f backend.Facts, s backend.Settings) (backend.Layout, error) {
	return newLayout(f, s)
}
