//go:build cgo && linux

package mpi

/*
#include "library.h"
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"
)

// load loads the library and checks that it is Open MPI, before anything of it runs.
func (w *World) load() error {
	w.m = (*C.vapp_mpi)(C.calloc(1, C.sizeof_vapp_mpi))
	path, err := w.find()
	if err == nil {
		err = w.identify(path)
	}
	if err != nil {
		C.vapp_mpi_unload(w.m)
		C.free(unsafe.Pointer(w.m))
	}
	return err
}

// find loads the library that the options name, or the first one that is where it is looked for.
func (w *World) find() (path string, err error) {
	if path = w.options.Library; path != "" {
		if why := w.dlopen(path); why != "" {
			return "", &LibraryError{path, "the loader cannot open it: " + why, install}
		}
		return path, nil
	}
	why := w.dlopen(soname)
	if why == "" {
		return soname, nil
	}
	if !strings.HasPrefix(why, soname+": cannot open shared object file") {
		return "", &LibraryError{soname, "the loader cannot open it: " + why, install}
	}
	for _, path := range places() {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if why := w.dlopen(path); why != "" {
			return "", &LibraryError{path, "the loader cannot open it: " + why, install}
		}
		return path, nil
	}
	return "", absent(places())
}

// dlopen returns the loader's text, "" if it has opened the library.
func (w *World) dlopen(path string) string {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	return C.GoString(C.vapp_mpi_load(w.m, p))
}

// identify checks the kind and the version of the loaded library, and looks its symbols up.
func (w *World) identify(path string) error {
	text := (*C.char)(C.calloc(1, C.VAPP_MPI_VERSION+1))
	defer C.free(unsafe.Pointer(text))
	switch rc := C.vapp_mpi_version(w.m, text); {
	case rc < 0:
		return &LibraryError{path, "it is not a library of MPI: it has no MPI_Get_library_version", install}
	case rc > 0:
		return &LibraryError{path, fmt.Sprintf("MPI_Get_library_version returns code %d", rc), install}
	}
	library, err := checkVersion(path, C.GoString(text))
	if err != nil {
		return err
	}
	if missing := C.vapp_mpi_bind(w.m); missing != nil {
		return &LibraryError{path, fmt.Sprintf("it is %s without the symbol %s", library, C.GoString(missing)), install}
	}
	w.library = library
	return nil
}

// result returns the error of a call's code. It is the world's: no call follows.
func (w *World) result(what string, rc C.int) error {
	switch {
	case rc == 0:
		return nil
	case rc == C.VAPP_MPI_ABORTED:
		return w.failed()
	case rc == C.VAPP_MPI_TIMEOUT:
		return w.abort(&WaitError{what, w.rank, w.size, w.host, w.options.Wait})
	case rc == C.VAPP_MPI_MISMATCH:
		return w.abort(w.mismatch())
	}
	text := (*C.char)(C.calloc(1, C.VAPP_MPI_ERROR+1))
	defer C.free(unsafe.Pointer(text))
	C.vapp_mpi_error(w.m, rc, text)
	return w.abort(&CallError{what, w.rank, w.host, int(rc), C.GoString(text)})
}

// mismatch returns the error of two ranks that did not make the same call.
func (w *World) mismatch() error {
	m := &w.m.mismatch
	of := "rank"
	if m.wanted_tag>>C.VAPP_MPI_TAG_BITS == C.VAPP_MPI_STAGE {
		of = "stage"
	}
	describe := func(tag, bytes C.int, stage string) string {
		kind := map[C.int]string{C.VAPP_MPI_BROADCAST: "broadcast", C.VAPP_MPI_REDUCE: "all_reduce", C.VAPP_MPI_SCATTER: "all_reduce",
			C.VAPP_MPI_SUMS: "all_reduce", C.VAPP_MPI_GATHER: "all_gather", C.VAPP_MPI_STAGE: stage}[tag>>C.VAPP_MPI_TAG_BITS]
		return fmt.Sprintf("%s of %d bytes (message %d)", kind, bytes, tag&(1<<C.VAPP_MPI_TAG_BITS-1))
	}
	return &MismatchError{of, int(m.rank), int(m.peer), describe(m.wanted_tag, m.wanted_bytes, "receive"), describe(m.tag, m.bytes, "send")}
}
