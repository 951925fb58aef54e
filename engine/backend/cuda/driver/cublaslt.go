//go:build linux && cgo && cuda

package driver

/*
#include "native.h"
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"unsafe"
)

// blasStatus is the offset of cuBLASLt's statuses among the driver's.
const blasStatus = C.VAPP_BLAS_STATUS

// BLAS is cuBLASLt with a handle for a context. One goroutine uses it, except for the lists
// that run its products.
type BLAS struct {
	ctx      *Context
	c        *C.vapp_blas
	plain    unsafe.Pointer // the descriptor of products without a bias
	shapes   map[C.vapp_shape_args]*C.vapp_shape
	products []*Product
}

// BLAS opens cuBLASLt for a context that is current. Errors: *NoBLAS, *BLASTooOld, *BLASTooNew, *BLASError.
func (c *Context) BLAS() (*BLAS, error) {
	library, _, err := openBLAS()
	if err != nil {
		return nil, err
	}
	b := &BLAS{ctx: c, c: library, shapes: map[C.vapp_shape_args]*C.vapp_shape{}}
	if err := b.open(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *BLAS) open() error {
	if status := C.vapp_blas_create(b.c); status != 0 {
		return b.failed("cublasLtCreate", int(status))
	}
	if status := C.vapp_blas_desc(b.c, 0, 0, 0, 0, &b.plain); status != 0 {
		return b.failed("cublasLtMatmulDescCreate", int(status))
	}
	return nil
}

func (b *BLAS) failed(call string, status int) error {
	return &BLASError{Call: call, Status: status, Name: C.GoString(C.vapp_blas_status(b.c, C.int(status))), Device: b.ctx.name}
}

// Wrong returns the error of a product by algorithm i that has a number which is not the right one.
func (b *BLAS) Wrong(i int, got, want float32) error {
	return &BLASWrong{Device: b.ctx.name, Version: BLASVersion(b.Version()), Algorithm: i, Got: got, Want: want}
}

// Version returns the library's version: 130101 is 13.1.1.
func (b *BLAS) Version() int { return int(C.vapp_blas_version(b.c)) }

// Numbers is the format of W and X of a Multiplication.
type Numbers int

// The formats. E4M3 has scales.
const (
	BF16 Numbers = C.vapp_bf16
	F16  Numbers = C.vapp_f16
	E4M3 Numbers = C.vapp_e4m3
)

func (n Numbers) String() string { return [...]string{"bf16", "f16", "f8_e4m3"}[n] }

// Multiplication is a product for a List: Y [rows, Out] in float32 = X [rows, In] · Wᵀ +
// Bias, with W [Out, In] and up to Most rows. With YBF16, of BF16 and E4M3, sums in float32
// are rounded to a Y in bf16, and there is no Bias. A launch rounds the rows up to a multiple of
// Unit, at most Most. With E4M3, each row of W and of X has a float32 scale, WScales [Out]
// and XScales [Most], and there is no Bias. With Blocks, a 128 × 128 block of W has a scale,
// WScales [Out/128, In/128 rounded up to a multiple of 4], and so has a run of 128 in a row
// of X, XScales [In/128, computed rows]; the computed rows are a multiple of 4.
type Multiplication struct {
	Numbers                  Numbers
	In, Out, Most, Unit      int
	W, X, Bias, Y, Workspace Address
	WScales, XScales         Address // for E4M3 only
	Blocks                   bool    // scales are of blocks
	YBF16                    bool    // Y is in bf16
	Bytes                    int64   // size of the workspace
	Args, RowsAt             int     // size of a launch's arguments, and the offset of the int32 row count in them
}

// Product is a Multiplication with an algorithm for each number of rows.
type Product struct {
	b    *BLAS
	c    *C.vapp_product
	args int
}

// Ask asks the library for the algorithms of a product. The error is a *NoAlgorithm if there
// is none, or if Y cannot be in bf16, or a *BLASTooOld if the library does not support such scales.
func (b *BLAS) Ask(m Multiplication) error {
	desc, err := b.desc(m)
	if err != nil {
		return err
	}
	defer b.freeDesc(desc)
	_, err = b.all(m, desc)
	return err
}

// Product returns a product for lists, with the algorithms that Ask finds. The same shape
// gets the same algorithms while the library is open.
func (b *BLAS) Product(m Multiplication) (*Product, error) {
	desc, err := b.desc(m)
	if err != nil {
		return nil, err
	}
	shapes, err := b.all(m, desc)
	if err != nil {
		b.freeDesc(desc)
		return nil, err
	}
	p := &Product{b: b, args: m.Args, c: (*C.vapp_product)(C.calloc(1, C.size_t(unsafe.Sizeof(C.vapp_product{}))))}
	*p.c = C.vapp_product{
		blas: b.c, desc: desc, w: C.CUdeviceptr(m.W), x: C.CUdeviceptr(m.X), y: C.CUdeviceptr(m.Y), workspace: C.CUdeviceptr(m.Workspace),
		bytes: C.size_t(m.Bytes), unit: C.int32_t(m.Unit), most: C.int32_t(m.Most), rows_at: C.int32_t(m.RowsAt),
		shapes: (**C.vapp_shape)(C.calloc(C.size_t(len(shapes)), C.size_t(unsafe.Sizeof(shapes[0])))),
	}
	copy(unsafe.Slice(p.c.shapes, len(shapes)), shapes)
	b.products = append(b.products, p)
	return p, nil
}

// desc returns the descriptor of a product. Products without bias and scales share one.
func (b *BLAS) desc(m Multiplication) (out unsafe.Pointer, err error) {
	if have := b.Version(); m.Numbers == E4M3 && have < BLASNeedScales {
		return nil, &BLASTooOld{Have: have, Need: BLASNeedScales}
	}
	if m.YBF16 && (m.Numbers == F16 || m.Bias != 0) { // a bias would be bf16, ours is float32
		return nil, m.none(min(m.Unit, m.Most))
	}
	if m.Bias == 0 && m.WScales == 0 {
		return b.plain, nil
	}
	if status := C.vapp_blas_desc(b.c, C.CUdeviceptr(m.Bias), C.CUdeviceptr(m.WScales), C.CUdeviceptr(m.XScales), C.int(flag(m.Blocks)), &out); status != 0 {
		b.freeDesc(out)
		return nil, b.failed("cublasLtMatmulDescSetAttribute", int(status))
	}
	return out, nil
}

func (b *BLAS) freeDesc(desc unsafe.Pointer) {
	if desc != b.plain {
		C.vapp_blas_free_desc(b.c, desc)
	}
}

// all returns the shapes of a product, by rows.
func (b *BLAS) all(m Multiplication, desc unsafe.Pointer) ([]*C.vapp_shape, error) {
	out := make([]*C.vapp_shape, (m.Most+m.Unit-1)/m.Unit)
	for i := range out {
		var err error
		if out[i], err = b.shape(m, min((i+1)*m.Unit, m.Most), desc); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// args describes a product of rows rows to the library.
func (b *BLAS) args(m Multiplication, rows int) C.vapp_shape_args {
	const most = 256
	return C.vapp_shape_args{
		in: C.int64_t(m.In), out: C.int64_t(m.Out), rows: C.int64_t(rows), workspace: C.uint64_t(m.Bytes), numbers: C.uint32_t(m.Numbers),
		aligned: C.uint32_t(aligned(m.W|m.X, most)), aligned_y: C.uint32_t(aligned(m.Y, most)), bias: flag(m.Bias != 0), blocks: flag(m.Blocks),
		y_bf16: flag(m.YBF16),
	}
}

// shape returns the shape for a number of rows; the library is asked once.
func (b *BLAS) shape(m Multiplication, rows int, desc unsafe.Pointer) (*C.vapp_shape, error) {
	a := b.args(m, rows)
	if s := b.shapes[a]; s != nil {
		return s, nil
	}
	var s *C.vapp_shape
	var found C.int
	status := C.vapp_blas_shape(b.c, &a, desc, &s, &found)
	if status == 0 && found > 0 {
		b.shapes[a] = s
		return s, nil
	}
	C.vapp_blas_free_shape(b.c, s)
	if status != 0 {
		return nil, b.failed("cublasLtMatrixLayoutCreate", int(status))
	}
	return nil, m.none(rows)
}

// none returns the error that there is no algorithm for a number of rows.
func (m Multiplication) none(rows int) error {
	format := m.Numbers.String()
	if m.YBF16 {
		format += " with results in bf16"
		if m.Bias != 0 {
			format += " and a bias"
		}
	}
	return &NoAlgorithm{Rows: rows, In: m.In, Out: m.Out, Format: format, Workspace: m.Bytes}
}

// aligned returns the largest power of 2, up to most, that divides an address.
func aligned(at Address, most int) int {
	n := 1
	for n < most && at&Address(2*n-1) == 0 {
		n *= 2
	}
	return n
}

func flag(b bool) C.uint32_t {
	if b {
		return 1
	}
	return 0
}

// launched returns what a list stores of the product; zeros for none.
func (p *Product) launched() (ctx *Context, name string, args int) {
	if p == nil {
		return nil, "", 0
	}
	return p.b.ctx, "cublasLtMatmul", p.args
}

// Close destroys the handle and frees the products; no list may run them.
func (b *BLAS) Close() error {
	for _, p := range b.products {
		b.freeDesc(p.c.desc)
		C.free(unsafe.Pointer(p.c.shapes))
		C.free(unsafe.Pointer(p.c))
	}
	for _, s := range b.shapes {
		C.vapp_blas_free_shape(b.c, s)
	}
	C.vapp_blas_free_desc(b.c, b.plain)
	b.products, b.shapes = nil, nil
	defer C.free(unsafe.Pointer(b.c))
	if status := C.vapp_blas_close(b.c); status != 0 {
		return b.failed("cublasLtDestroy", int(status))
	}
	return nil
}
