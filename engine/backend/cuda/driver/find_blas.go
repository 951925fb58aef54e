//go:build linux && cgo && cuda

package driver

/*
#include "native.h"
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"os"
	"strings"
	"unsafe"
)

// FindBLAS returns the version of the cuBLASLt that Context.BLAS opens, 130101 for 13.1.1, and its
// file; a bare name is one that the loader finds. It needs no device. Errors: *NoBLAS, *BLASTooOld, *BLASTooNew.
func FindBLAS() (version int, path string, err error) {
	b, path, err := openBLAS()
	if err != nil {
		return 0, "", err
	}
	version = int(C.vapp_blas_version(b))
	C.free(unsafe.Pointer(b)) // the library stays loaded, as it does behind Context.BLAS
	return version, path, nil
}

// openBLAS opens the cuBLASLt of this machine.
func openBLAS() (*C.vapp_blas, string, error) {
	b, path, err := loadBLAS(candidates())
	var none *NoBLAS
	if errors.As(err, &none) && none.Absent {
		if lone := withoutLt(os.Getenv, "/"); lone != "" {
			return nil, "", &NoBLAS{Why: lone}
		}
	}
	return b, path, err
}

// loadBLAS opens the first of the files that is a cuBLASLt of a supported version. If there is none,
// the error is about the first one that was there, or says that none was.
func loadBLAS(files []string) (*C.vapp_blas, string, error) {
	var first error
	for _, file := range files {
		b, err := loadBLASFile(file)
		if err == nil {
			return b, file, nil
		}
		if first == nil && !absent(file, err) {
			first = err
		}
	}
	switch {
	case first != nil:
		return nil, "", first
	case len(files) == 0:
		return nil, "", &NoBLAS{Why: "VAPP_LIBCUBLASLT is " + NoLibrary, Absent: true}
	case len(files) == 1:
		return nil, "", &NoBLAS{Why: "the loader does not find " + files[0]}
	}
	return nil, "", &NoBLAS{Why: notInstalled, Absent: true}
}

// absent reports whether the loader finds no file of a bare name. Then others may have it.
func absent(file string, err error) bool {
	missing, ok := err.(*NoBLAS)
	return ok && ofLoader(file) && strings.HasPrefix(missing.Why, file+": cannot open shared object file")
}

func loadBLASFile(file string) (*C.vapp_blas, error) {
	if !ofLoader(file) {
		if err := wholeLibrary(file); err != nil {
			return nil, &NoBLAS{Why: err.Error()}
		}
	}
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	var b *C.vapp_blas
	var why [512]C.char
	if C.vapp_blas_load(&b, name, &why[0], C.size_t(len(why))) != 0 {
		said := C.GoString(&why[0])
		if !strings.HasPrefix(said, file) { // about a library that it needs
			said = file + ": " + said
		}
		return nil, &NoBLAS{Why: said}
	}
	switch have := int(C.vapp_blas_version(b)); {
	case have < BLASNeed:
		C.vapp_blas_unload(b)
		return nil, &BLASTooOld{Have: have, Need: BLASNeed}
	case have/10000 > BLASNewest:
		C.vapp_blas_unload(b)
		return nil, &BLASTooNew{Have: have}
	}
	return b, nil
}
