//go:build linux && cgo && cuda

package driver

import "fmt"

// Launch is one kernel of a List, or a product of a library. Args are the bytes of its struct; a
// launch whose Symbols make 0 blocks is left out.
type Launch struct {
	Function        *Function
	Product         *Product // in place of Function
	Blocks, Threads [3]int
	Shared          int // bytes of dynamic shared memory
	Args            []byte
	Symbols         []Symbol
}

// List is launches in the host's memory outside of Go's.
type List struct {
	ctx      *Context
	names    []string
	products []*Product // of launches that are the library's; nil for kernels
	sizes    []int
	l        list
}

// NewList copies launches, and says which of them no device would take. All functions are
// of one context.
func NewList(launches []Launch) (*List, error) {
	out := &List{}
	for i, l := range launches {
		ctx, name, args := l.Product.launched()
		if l.Product == nil {
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
		out.sizes = append(out.sizes, len(l.Args))
	}
	out.l = newList(launches)
	return out, nil
}

// Len is the number of launches.
func (l *List) Len() int { return len(l.names) }

// Args are the arguments of launch i in place: what is written to them counts from the
// next Run on.
func (l *List) Args(i int) []byte { return l.l.args(i, l.sizes[i]) }

// Run launches [from, to) with these bound numbers, by one call and without memory of Go's.
// The error is an *Error that names the kernel.
func (l *List) Run(s *Stream, from, to int, bound [NumBound]int32) error {
	if from < 0 || to > len(l.names) || from >= to {
		if from == to {
			return nil
		}
		return fmt.Errorf("launches %d to %d of %d", from, to, len(l.names))
	}
	return l.failed(l.l.run(s.s, from, to, &bound))
}

// Load runs the products of launches [from, to) whose kernels the library has not brought to the
// device yet, for a capture of them to find them there. What they compute is nothing that anybody reads.
func (l *List) Load(s *Stream, from, to int, bound [NumBound]int32) error {
	return l.failed(l.l.load(s.s, from, to, &bound))
}

// failed is the error that code is of launch i.
func (l *List) failed(i, code int) error {
	switch {
	case code > blasStatus:
		return l.products[i].b.failed("cublasLtMatmul", code-blasStatus)
	case code != 0:
		return l.ctx.kernel(failed("cuLaunchKernel", code, l.ctx.name), l.names[i])
	}
	return nil
}

// Close gives the memory back.
func (l *List) Close() {
	l.l.free()
	l.l, l.names = list{}, nil
}
