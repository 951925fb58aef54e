//go:build linux && cgo && cuda

package driver

import (
	"fmt"
	"unsafe"
)

// Launch is one kernel of a List, or a product or another call of a library. Args are the bytes of its
// argument struct. A launch whose Symbols give 0 blocks is skipped.
type Launch struct {
	Function        *Function
	Product         *Product // instead of Function
	Call            *Call    // instead of both
	Blocks, Threads [3]int
	Shared          int // bytes of dynamic shared memory
	Args            []byte
	Symbols         []Symbol
}

// Call launches work of another library on a stream: its collectives, for example.
type Call struct {
	Name   string
	Args   int                    // bytes of a launch's arguments
	Run    unsafe.Pointer         // int (*)(void *data, const void *args, CUstream): 0 or a status
	Data   unsafe.Pointer         // C memory
	Failed func(status int) error // returns the error for a status
}

// List is a list of launches in C memory.
type List struct {
	ctx      *Context
	names    []string
	products []*Product // by launch; nil for others
	calls    []*Call    // by launch; nil for others
	sizes    []int
	l        list
}

// NewList copies launches. It fails for launches that no device accepts. All functions must
// be of one context. Where the device does so (Context.Dependent), a kernel behind another one of a run may begin while
// that one runs: kernels/cuda/design.md says how they wait.
func NewList(launches []Launch) (*List, error) {
	out := &List{}
	for i, l := range launches {
		ctx, name, args := l.Product.launched()
		switch {
		case l.Call != nil:
			ctx, name, args = out.ctx, l.Call.Name, l.Call.Args
		case l.Product == nil:
			ctx, name, args = l.Function.ctx, l.Function.name, l.Function.args
		}
		err := check(l.Blocks, l.Threads, l.Shared, len(l.Args), l.Symbols)
		if err == nil && len(l.Args) != args {
			err = fmt.Errorf("arguments of %d bytes, it takes %d", len(l.Args), args)
		}
		if err != nil {
			return nil, fmt.Errorf("launch %d, %s: %w", i, name, err)
		}
		out.ctx = ctx
		out.names = append(out.names, name)
		out.products = append(out.products, l.Product)
		out.calls = append(out.calls, l.Call)
		out.sizes = append(out.sizes, len(l.Args))
	}
	out.l = newList(launches, out.ctx != nil && out.ctx.dependent)
	return out, nil
}

// Len returns the number of launches.
func (l *List) Len() int { return len(l.names) }

// Args returns the arguments of launch i, in place: changes take effect at the next Run.
func (l *List) Args(i int) []byte { return l.l.args(i, l.sizes[i]) }

// Run launches [from, to) with these bound numbers, by one call into C and without allocating
// Go memory. The error is an *Error with the kernel's name.
func (l *List) Run(s *Stream, from, to int, bound [NumBound]int32) error {
	if from < 0 || to > len(l.names) || from >= to {
		if from == to {
			return nil
		}
		return fmt.Errorf("launches %d to %d of %d", from, to, len(l.names))
	}
	return l.failed(l.l.run(s.s, from, to, &bound))
}

// Load loads library kernels onto the device before a capture. It runs the products of
// launches [from, to) that have not run yet; their results are ignored.
func (l *List) Load(s *Stream, from, to int, bound [NumBound]int32) error {
	return l.failed(l.l.load(s.s, from, to, &bound))
}

// failed returns the error for code at launch i.
func (l *List) failed(i, code int) error {
	switch {
	case code > callStatus:
		return fmt.Errorf("%s: %w", l.names[i], l.calls[i].Failed(code-callStatus))
	case code > blasStatus:
		return l.products[i].b.failed("cublasLtMatmul", code-blasStatus)
	case code != 0:
		return l.ctx.kernel(failed("cuLaunchKernel", code, l.ctx.name), l.names[i])
	}
	return nil
}

// Close frees the memory.
func (l *List) Close() {
	l.l.free()
	l.l, l.names = list{}, nil
}
