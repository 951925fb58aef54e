// Package driver is the CUDA driver as backend cuda uses it: devices, memory, modules,
// streams, events, lists of launches and graphs of them. It is gorgonia.org/cu where that
// has what is needed, and one file of C beside it (native.go) where not. The driver's
// library is opened when something is first asked of it, so that a binary with this package
// starts on machines that have none.
//
// Everything beyond the types of this file is for Linux with cgo and the build tag cuda;
// other builds have Devices and Open, which fail with ErrNotBuilt.
//
// A Context is for threads on which it is current: that of Open, and those that call
// Context.Enter, all locked with runtime.LockOSThread. A Stream, a List and a Graph are for
// one goroutine at a time.
package driver

import (
	"errors"
	"fmt"

	"vapp.dev/kernels/cuda"
)

// Address is a place in device memory, or in host memory as the device sees it.
type Address = cuda.Ptr

// ErrNotBuilt is what a binary without the tag cuda says.
var ErrNotBuilt = errors.New("this binary was built without CUDA: build it with make build CUDA=1")

// Info is a device as the driver tells of it, without a context.
type Info struct {
	Ordinal        int
	Name           string // "NVIDIA H200"
	UUID           string // "GPU-…"
	Major, Minor   int    // compute capability
	SMs            int
	SharedPerBlock int // bytes of shared memory that a block may ask for
	SharedPerSM    int
	L2             int64 // bytes of the second cache
	Total          int64 // bytes of memory
	Bandwidth      float64
	Driver         int // the CUDA that the driver speaks: 13000 is 13.0
	ECC            bool
	Integrated     bool // memory is the host's
	Prohibited     bool // compute mode lets nobody open it
	Exclusive      bool // compute mode lets one process open it
	Emulated       bool // kernels/cuda/emulation on the host
}

// Capability is "9.0".
func (i Info) Capability() string { return fmt.Sprintf("%d.%d", i.Major, i.Minor) }

// CUDA is what the driver speaks: "13.0".
func (i Info) CUDA() string { return version(i.Driver) }

// String is one line: name, capability, memory.
func (i Info) String() string {
	return fmt.Sprintf("%s (compute capability %s, %d SMs, %.2f GiB)", i.Name, i.Capability(), i.SMs, float64(i.Total)/(1<<30))
}

// version prints what the driver says of itself: 13000 is "13.0".
func version(n int) string { return fmt.Sprintf("%d.%d", n/1000, n%1000/10) }
