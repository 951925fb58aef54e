//go:build cgo

package cpu

/*
#cgo LDFLAGS: -lm
#include "kernels.h"
#include "sizes.h"

static void vapp_limit_call(uintptr_t f, const void *buffer, int64_t bytes, int64_t rounds, int part, int parts, float *sink)
{
	vapp_limit a = {buffer, bytes, rounds, sink};
	vapp_call c = {.part = part, .parts = parts};
	((vapp_fn)f)(&a, &c);
}
*/
import "C"

import (
	"unsafe"

	"vapp.dev/kernels"
)

// Kernel returns the address of an op's function, a vapp_fn of kernels.h, in a
// variant; false where this build has none.
func Kernel(op Op, variant string) (uintptr, bool) {
	n, ok := variantNumbers[variant]
	if !ok {
		return 0, false
	}
	f := C.vapp_kernel(C.int(op), n)
	return uintptr(unsafe.Pointer(f)), f != nil
}

// Address is the kernel as Linear.Kernel wants it.
func (k LinearKernel) Address() uintptr { return uintptr(unsafe.Pointer(k.c)) }

// RowAddress is the kernel's row function as Embed.Row wants it.
func (k LinearKernel) RowAddress() uintptr { return uintptr(unsafe.Pointer(k.c.row)) }

// PrepareRows is the number of rows from which on Linear needs OpLinearPrepare;
// 0 where it never does.
func (k LinearKernel) PrepareRows() int {
	if k.c.prepare == nil {
		return 0
	}
	return max(1, int(k.c.prepare_rows))
}

// Dequantize decodes len(dst) elements stored as f, any but I32 and U32, whole
// blocks; src has exactly their bytes.
func Dequantize(f kernels.Format, src []byte, dst []float32) {
	if elems, _ := f.Block(); len(dst)%elems != 0 || !Lookup(f) || int64(len(src)) != f.Bytes(int64(len(dst))) {
		panic("cpu: Dequantize: lengths do not fit the format")
	}
	if len(dst) > 0 {
		C.vapp_dequantize(C.int32_t(f), unsafe.Pointer(&src[0]), C.int64_t(len(dst)), (*C.float)(&dst[0]))
	}
}

// RoundBF16 rounds src to bfloat16, ties to even, in dst: 2·len(src) bytes.
func RoundBF16(src []float32, dst []byte) {
	if len(dst) != 2*len(src) {
		panic("cpu: RoundBF16: lengths differ")
	}
	if len(src) > 0 {
		C.vapp_round_bf16((*C.float)(&src[0]), C.int64_t(len(src)), (*C.uint16_t)(unsafe.Pointer(&dst[0])))
	}
}

// mirrors are the sizes of the C structs of args.go, in the order of the Go ones
// in kernels_test.go, then the constants.
func mirrors() (structs [24]int, constants [7]int) {
	for i := range structs {
		structs[i] = int(C.vapp_size(C.int(i)))
	}
	return structs, [7]int{C.VAPP_ATTENTION_SPAN, C.VAPP_ATTENTION_TILE, C.VAPP_ATTENTION_DIM, C.VAPP_SAMPLE_BINS, C.VAPP_CONV_KERNEL, C.VAPP_DELTA_COLS, C.VAPP_DELTA_KEYS}
}

// runLimit is part of parts of an op that measures a limit: of reading buffer once, or of
// so many rounds. It panics where this build or variant has no such op.
func runLimit(op Op, variant string, buffer []byte, rounds int64, part, parts int) {
	f, ok := Kernel(op, variant)
	if !ok || part >= parts {
		panic("cpu: no such measurement")
	}
	sink := make([]float32, 16*parts)
	C.vapp_limit_call(C.uintptr_t(f), unsafe.Pointer(unsafe.SliceData(buffer)), C.int64_t(len(buffer)), C.int64_t(rounds),
		C.int(part), C.int(parts), floatPointer(sink))
}
