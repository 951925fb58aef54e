// Package driver wraps the CUDA driver for backend cuda: devices, memory, modules, streams,
// events, lists of launches and graphs of them.
//
// It must not know programs, weights or the backend's layout. Start reading at Open and
// Context in context.go, then List in list.go.
//
// It uses gorgonia.org/cu where that is sufficient, and native.go with a little C for the
// rest. The driver's library is opened at its first use, so a binary with this package starts
// on machines without it.
//
// Everything beyond the types of this file is for Linux with cgo and the build tag cuda;
// other builds have Devices and Open, which fail with ErrNotBuilt.
//
// A Context may be used on threads on which it is current: those that call Context.Enter, locked
// with runtime.LockOSThread, and those of Context.Do. One goroutine at a time may use a Stream, a
// List or a Graph.
package driver

import (
	"errors"
	"fmt"

	"vapp.dev/kernels/cuda"
)

// Address is an address in device memory, or the device address of host memory.
type Address = cuda.Ptr

// ErrNotBuilt is the error of a binary without the tag cuda.
var ErrNotBuilt = errors.New("this binary was built without CUDA: build it with make build CUDA=1")

// Info is the facts of a device that the driver reports without a context.
type Info struct {
	Ordinal        int
	Name           string // "NVIDIA H200"
	UUID           string // "GPU-…"
	Major, Minor   int    // compute capability
	SMs            int
	SharedPerBlock int // most bytes of shared memory of a block
	SharedPerSM    int
	L2             int64 // bytes of the L2 cache
	Total          int64 // bytes of memory
	Bandwidth      float64
	Driver         int // CUDA version of the driver: 13000 is 13.0
	ECC            bool
	Integrated     bool // memory is the host's
	Prohibited     bool // compute mode: no process may open it
	Exclusive      bool // compute mode: one process may open it
	Emulated       bool // kernels/cuda/emulation on the host
}

// Capability returns the compute capability: "9.0".
func (i Info) Capability() string { return fmt.Sprintf("%d.%d", i.Major, i.Minor) }

// CUDA returns the CUDA version of the driver: "13.0".
func (i Info) CUDA() string { return cuda.Version(i.Driver) }

// Code returns the kernels that the device loads. Errors: *DriverTooOld, *cuda.NoCode.
func (i Info) Code() (cuda.Code, error) { return cuda.CodeFor(i.Driver, i.Major, i.Minor) }

// String returns one line: name, capability, memory.
func (i Info) String() string {
	return fmt.Sprintf("%s (compute capability %s, %d SMs, %.2f GiB)", i.Name, i.Capability(), i.SMs, float64(i.Total)/(1<<30))
}
