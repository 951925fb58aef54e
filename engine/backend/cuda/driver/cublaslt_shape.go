//go:build linux && cgo && cuda

package driver

/*
#include "native.h"
*/
import "C"

import (
	"fmt"
	"time"
	"unsafe"
)

// Shape is a product with a fixed number of rows, for which the library offers algorithms.
type Shape struct {
	b    *BLAS
	c    *C.vapp_shape
	args C.vapp_shape_args
}

// Algorithm is an algorithm of the library. It is valid for one shape and one version of the library.
type Algorithm [C.VAPP_ALGORITHM_BYTES]byte

// Shapes returns the shapes of a product, by rows. Errors are those of Ask.
func (b *BLAS) Shapes(m Multiplication) ([]Shape, error) {
	desc, err := b.desc(m)
	if err != nil {
		return nil, err
	}
	defer b.freeDesc(desc)
	list, err := b.all(m, desc)
	out := make([]Shape, len(list))
	for i, c := range list {
		out[i] = Shape{b, c, b.args(m, min((i+1)*m.Unit, m.Most))}
	}
	return out, err
}

// String returns the shape as it is described to the library. Shapes with the same text are one.
func (s Shape) String() string {
	a := s.args
	text := fmt.Sprintf("%v %dx%d, %d rows, workspace %d, aligned %d and %d", Numbers(a.numbers), a.out, a.in, a.rows, a.workspace, a.aligned, a.aligned_y)
	if a.bias != 0 {
		text += ", bias"
	}
	if a.blocks != 0 {
		text += ", blocks"
	}
	if a.y_bf16 != 0 {
		text += ", results in bf16"
	}
	return text
}

// Algorithms returns what the library offers for the shape, at most 8, its own choice first.
func (s Shape) Algorithms() []Algorithm {
	out := make([]Algorithm, int(C.vapp_shape_count(s.c)))
	for i := range out {
		copy(out[i][:], unsafe.Slice((*byte)(C.vapp_shape_offered(s.c, C.int(i))), len(out[i])))
	}
	return out
}

// Use makes products of the shape run by algorithm i.
func (s Shape) Use(i int) { C.vapp_shape_use(s.c, C.int(i)) }

// timedRuns is how many products Time measures at least.
const timedRuns = 3

// Time returns how long algorithm i takes for a product of the shape on the device: the mean over
// products ms of the same shape, each once, and at least three in all, after one that loads its
// kernel. Results overwrite Y and Workspace. wait waits for a Timer. A *BLASError means that the library
// refused to run it.
func (s Shape) Time(st *Stream, ms []Multiplication, i int, wait func(*Event) error) (time.Duration, error) {
	descs := make([]unsafe.Pointer, len(ms))
	for j, m := range ms {
		d, err := s.b.desc(m)
		if err != nil {
			return 0, err
		}
		defer s.b.freeDesc(d)
		descs[j] = d
	}
	run := func(j int) error {
		m := ms[j]
		status := C.vapp_shape_run(s.b.c, s.c, C.int(i), descs[j], C.CUdeviceptr(m.W), C.CUdeviceptr(m.X), C.CUdeviceptr(m.Y), C.CUdeviceptr(m.Workspace), C.size_t(m.Bytes), stream(st.s))
		if status != 0 {
			return s.b.failed("cublasLtMatmul", int(status))
		}
		return nil
	}
	if err := run(0); err != nil {
		return 0, err
	}
	from, err := s.b.ctx.Timer()
	if err != nil {
		return 0, err
	}
	defer from.Close()
	to, err := s.b.ctx.Timer()
	if err != nil {
		return 0, err
	}
	defer to.Close()
	if err := st.Record(from); err != nil {
		return 0, err
	}
	n := max(timedRuns, len(ms))
	for k := range n {
		if err := run(k % len(ms)); err != nil {
			return 0, err
		}
	}
	if err := st.Record(to); err != nil {
		return 0, err
	}
	if err := wait(to); err != nil {
		return 0, err
	}
	took, err := to.Since(from)
	return took / time.Duration(n), err
}
