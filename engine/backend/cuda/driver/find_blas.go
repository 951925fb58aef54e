//go:build linux && cgo && cuda

package driver

/*
#include "native.h"
#include <stdlib.h>
*/
import "C"

import "unsafe"

// FindBLAS loads cuBLASLt without a device and returns its version: 130101 is 13.1.1. Errors:
// *NoBLAS, *BLASTooOld.
func FindBLAS() (int, error) {
	var b *C.vapp_blas
	var why [512]C.char
	missing := C.vapp_blas_load(&b, &why[0], C.size_t(len(why)))
	defer C.free(unsafe.Pointer(b))
	if missing != 0 {
		return 0, &NoBLAS{Why: C.GoString(&why[0])}
	}
	have := int(C.vapp_blas_version(b))
	if have < BLASNeed {
		return have, &BLASTooOld{Have: have, Need: BLASNeed}
	}
	return have, nil
}
