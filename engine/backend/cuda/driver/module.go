//go:build linux && cgo && cuda

package driver

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"vapp.dev/kernels/cuda"
)

// ErrNoKernels is the error of a binary without embedded kernels.
var ErrNoKernels = errors.New("this binary was built without kernels: make kernels, then make build CUDA=1")

// Module is a set of kernels that a context has loaded.
type Module struct {
	ctx *Context
	m   cu.Module
}

// Load loads machine code or PTX. An emulated driver has its own kernels and ignores the image.
// Errors: ErrNoKernels, *NoKernelError, *Error.
func (c *Context) Load(image []byte) (*Module, error) {
	if len(image) == 0 && !c.info.Emulated {
		return nil, ErrNoKernels
	}
	m, err := cu.LoadData(unsafe.String(unsafe.SliceData(image), len(image)))
	if err != nil {
		failure := c.wrap("cuModuleLoadData", err)
		switch code(err) {
		case codeNoBinary, codeInvalidPTX, codeNoCompiler, codeUnsupportedPTX, codeNoJIT:
			return nil, &NoKernelError{Device: c.info, Err: failure}
		}
		return nil, failure
	}
	return &Module{c, m}, nil
}

// Close unloads the kernels.
func (m *Module) Close() error { return m.ctx.wrap("cuModuleUnload", m.m.Unload()) }

// Function is one kernel. Its only argument is a struct.
type Function struct {
	ctx  *Context
	name string
	f    cu.Function
	args int
}

// Function finds a kernel by its symbol and loads its code onto the device. The size of its
// argument is what the driver reports, or in drivers before CUDA 12.4, which cannot, the
// catalogue's.
func (m *Module) Function(name string) (*Function, error) {
	f, err := m.m.Function(name)
	if err != nil {
		return nil, m.ctx.kernel(m.ctx.wrap("cuModuleGetFunction", err), name)
	}
	// Drivers without cuFuncLoad, before CUDA 12.4, load the code in cuModuleGetFunction.
	if code := loadFunction(f); code != 0 && code != codeNotFound {
		return nil, m.ctx.kernel(failed("cuFuncLoad", code, m.ctx.name), name)
	}
	n, code := argumentBytes(f)
	if code == codeNotFound {
		if n, code = catalogued()[name], 0; n == 0 {
			return nil, fmt.Errorf("%s is not in the catalogue, and a driver for CUDA %s does not tell its argument: update NVIDIA's driver", name, m.ctx.info.CUDA())
		}
	}
	if code == 0 && n < 0 {
		return nil, fmt.Errorf("%s takes more than one argument", name)
	}
	return &Function{m.ctx, name, f, n}, m.ctx.kernel(failed("cuFuncGetParamInfo", code, m.ctx.name), name)
}

// catalogued are the sizes of the catalogue's argument structs by symbol.
var catalogued = sync.OnceValue(func() map[string]int {
	out := map[string]int{}
	for _, k := range cuda.Catalogue() {
		out[cuda.Prefix+k.Name] = k.Args
	}
	return out
})

// kernel adds the kernel's name to an error.
func (c *Context) kernel(err error, name string) error {
	if e := (*Error)(nil); errors.As(err, &e) {
		e.Kernel = name
	}
	return err
}

// Name returns the symbol.
func (f *Function) Name() string { return f.name }

// Args returns the size of the kernel's argument struct in bytes.
func (f *Function) Args() int { return f.args }

// SharedMax raises the limit of dynamic shared memory for launches from 48 KiB to n bytes.
func (f *Function) SharedMax(n int) error {
	return f.failed("cuFuncSetAttribute", setSharedMax(f.f, n))
}

// Attributes returns the kernel's properties on this device.
func (f *Function) Attributes() (Attributes, error) {
	a, code := attributes(f.f)
	return a, f.failed("cuFuncGetAttribute", code)
}

// Occupancy returns how many blocks with this many threads and bytes of dynamic shared memory
// an SM runs at once.
func (f *Function) Occupancy(threads, shared int) (int, error) {
	n, code := occupancy(f.f, threads, shared)
	return n, f.failed("cuOccupancyMaxActiveBlocksPerMultiprocessor", code)
}

func (f *Function) failed(call string, code int) error {
	return f.ctx.kernel(failed(call, code, f.ctx.name), f.name)
}
