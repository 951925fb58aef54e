//go:build linux && cgo && cuda

package driver

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"gorgonia.org/cu"

	"vapp.dev/kernels/cuda"
)

// Context is an open device: its primary context, which other CUDA libraries in the process
// share.
type Context struct {
	info   Info
	device cu.Device
	c      cu.CUContext
	name   string // for error texts
	code   cuda.Code
	// dependent: kernels are launched so that they may begin while the one before runs.
	dependent bool
}

// Open opens a device. Its context is current on no thread yet: see Do and Enter. Errors: those of Devices, also
// *DriverTooOld for this device, *BusyError, *MemoryError, *NoKernelError, *Error.
func Open(ordinal int) (*Context, error) {
	all, err := Devices()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= len(all) {
		return nil, fmt.Errorf("device %d: this machine has %d, counted from 0", ordinal, len(all))
	}
	c := &Context{info: all[ordinal], device: cu.Device(ordinal)}
	c.name = fmt.Sprintf("device %d, %s", ordinal, c.info.Name)
	if c.code, err = c.info.Code(); err != nil {
		var none *cuda.NoCode
		if errors.As(err, &none) {
			return nil, &NoKernelError{Device: c.info, Err: err}
		}
		return nil, err
	}
	c.dependent = c.code.Dependent(c.info.Driver) && os.Getenv(plainLaunches) == ""
	if c.info.Prohibited {
		return nil, &BusyError{Device: c.info}
	}
	if c.c, err = c.device.RetainPrimaryCtx(); err != nil {
		switch code(err) {
		case codeUnavailable:
			return nil, &BusyError{Device: c.info, Err: c.wrap("cuDevicePrimaryCtxRetain", err)}
		case codeOutOfMemory: // a context fits unless other processes use the memory
			return nil, &MemoryError{Device: c.info, Need: contextBytes, Total: c.info.Total}
		}
		return nil, c.wrap("cuDevicePrimaryCtxRetain", err)
	}
	return c, nil
}

// Retain returns another reference to the device's context, which lives until all are closed.
func (c *Context) Retain() (*Context, error) {
	again := *c
	var err error
	again.c, err = c.device.RetainPrimaryCtx()
	return &again, c.wrap("cuDevicePrimaryCtxRetain", err)
}

// contextBytes is about the memory of a context.
const contextBytes = 512 << 20

// Info returns the device's facts.
func (c *Context) Info() Info { return c.info }

// Code returns the kernels that the device loads.
func (c *Context) Code() cuda.Code { return c.code }

// plainLaunches is the environment variable with which no launch is dependent, to measure what that gives.
const plainLaunches = "VAPP_PLAIN_LAUNCHES"

// Dependent reports whether kernels of a List may begin while the kernel before them runs.
func (c *Context) Dependent() bool { return c.dependent }

// Enter makes the context current on the calling thread, which the caller has locked.
func (c *Context) Enter() error { return c.wrap("cuCtxSetCurrent", cu.SetCurrentContext(c.c)) }

// Do calls f on a thread on which the context is current.
func (c *Context) Do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.Enter(); err != nil {
		return err
	}
	return f()
}

// Close releases the device with all memory, modules and streams of the context.
func (c *Context) Close() error {
	err := c.device.ReleasePrimaryCtx()
	cu.SetCurrentContext(cu.CUContext{})
	return c.wrap("cuDevicePrimaryCtxRelease", err)
}

// Memory returns the device's free and total memory in bytes.
func (c *Context) Memory() (free, total int64, err error) {
	free, total, err = cu.MemInfo()
	return free, total, c.wrap("cuMemGetInfo", err)
}

// Require fails with *MemoryError unless n bytes are free.
func (c *Context) Require(n int64) error {
	free, total, err := c.Memory()
	if err != nil {
		return err
	}
	if n > free {
		return &MemoryError{Device: c.info, Need: n, Free: free, Total: total}
	}
	return nil
}

// ReserveStack makes the driver take now, and not at a launch, the local memory of kernels with up to n bytes of stack a
// thread; 0: no kernel has a stack. The limit is set even if it is high enough already: that takes effect at once,
// and when the driver takes the memory of the limit that a context begins with is not documented.
func (c *Context) ReserveStack(n int) error {
	if n <= 0 {
		return nil
	}
	have, err := cu.Limits(cu.StackSize)
	if err != nil {
		return c.wrap("cuCtxGetLimit", err)
	}
	return c.wrap("cuCtxSetLimit", cu.SetLimit(cu.StackSize, max(have, int64(n))))
}

// Alloc allocates n ≥ 1 bytes on the device, at a multiple of 256.
func (c *Context) Alloc(n int64) (Address, error) {
	p, err := cu.MemAlloc(n)
	if err != nil && code(err) == codeOutOfMemory {
		if short := c.Require(n); short != nil {
			return 0, short
		}
	}
	return Address(p), c.wrap("cuMemAlloc", err)
}

// Free frees memory of Alloc.
func (c *Context) Free(p Address) error { return c.wrap("cuMemFree", cu.MemFree(cu.DevicePtr(p))) }

// Pinned allocates n bytes of pinned host memory: copies need no staging, and kernels access
// it at the device address.
func (c *Context) Pinned(n int64) (host []byte, device Address, err error) {
	p, device, code := hostAlloc(n)
	if code != 0 {
		return nil, 0, failed("cuMemHostAlloc", code, c.name)
	}
	return unsafe.Slice((*byte)(p), n), device, nil
}

// FreePinned frees memory of Pinned.
func (c *Context) FreePinned(host []byte) error {
	return c.wrap("cuMemFreeHost", cu.MemFreeHost(unsafe.Pointer(unsafe.SliceData(host))))
}

func (c *Context) wrap(call string, err error) error { return wrap(call, err, c.name) }
