//go:build linux && cgo && cuda

package nccl

/*
#cgo LDFLAGS: -ldl
#include "nccl.h"
#include <stdlib.h>
*/
import "C"

import (
	"sync"
	"time"
	"unsafe"
)

// Built reports whether this binary has the native half.
const Built = true

// native is the library's half of a Group.
type native struct {
	ranks *C.vapp_ranks // nil before Join and after Leave
}

// library is the library of this process, opened once.
var library = sync.OnceValues(func() (*C.vapp_nccl, error) {
	var lib *C.vapp_nccl
	var why [512]C.char
	var names []*C.char
	for _, p := range paths() {
		s := C.CString(p)
		defer C.free(unsafe.Pointer(s))
		names = append(names, s)
	}
	if C.vapp_nccl_load(&lib, &names[0], C.int(len(names)), &why[0], C.size_t(len(why))) != 0 {
		return nil, &NoLibrary{C.GoString(&why[0])}
	}
	return lib, nil
})

// Version returns the library's version: 22803 is 2.28.3. Errors: *NoLibrary, *TooOld, *Error.
func Version() (int, error) {
	lib, err := library()
	if err != nil {
		return 0, err
	}
	var have C.int
	if code := C.vapp_nccl_version(lib, &have); code != 0 {
		return 0, failed(lib, "this process", "ncclGetVersion", int(code))
	}
	if int(have) < Need {
		return int(have), &TooOld{int(have)}
	}
	return int(have), nil
}

// UniqueID returns what all ranks of a new group pass to Connect. Rank 0 makes it and lives as
// long as the others join. Errors: those of Version.
func UniqueID() ([]byte, error) {
	if _, err := Version(); err != nil {
		return nil, err
	}
	lib, err := library()
	if err != nil {
		return nil, err
	}
	var id [IDBytes]byte
	if code := C.vapp_nccl_unique_id(lib, unsafe.Pointer(&id[0])); code != 0 {
		return nil, failed(lib, "rank 0", "ncclGetUniqueId", int(code))
	}
	return id[:], nil
}

func failed(lib *C.vapp_nccl, rank, call string, code int) *Error {
	return &Error{Rank: rank, Call: call, Code: code, Name: C.GoString(C.vapp_nccl_name(lib, C.int(code)))}
}

// Join joins the other ranks. do calls a function on a thread with the device's context. Join
// returns after at most the wait of Connect, or when the group is aborted; a call of the library
// that has not ended then goes on until the process ends. Errors: *LateError, *Error, that of
// Abort.
func (g *Group) Join(do func(func() error) error) error {
	lib, err := library()
	if err != nil {
		return err
	}
	r := (*C.vapp_ranks)(C.calloc(1, C.size_t(unsafe.Sizeof(C.vapp_ranks{}))))
	*r = C.vapp_ranks{lib: lib, rank: C.int(g.tensor.Rank), size: C.int(g.tensor.World), stage: C.int(g.pipe.Rank), stages: C.int(g.pipe.World)}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r.id[0])), IDBytes), g.id)
	joined := make(chan error, 1)
	go func() {
		joined <- do(func() error {
			var call *C.char
			if code := C.vapp_ranks_join(r, &call); code != 0 {
				return failed(lib, g.String(), C.GoString(call), int(code))
			}
			return nil
		})
	}()
	late := time.NewTimer(g.wait)
	defer late.Stop()
	select {
	case err := <-joined:
		g.ranks = r
		return err
	case <-g.stop:
		return g.abortedBy()
	case <-late.C:
		return &LateError{Rank: g.String(), Waited: g.wait}
	}
}

// Launch returns a C function that launches a collective, and its first argument:
// int (*)(void *data, const void *args, CUstream), with an Args as args. It returns 0 or a status for
// Failed. It is for the thread of the device.
func (g *Group) Launch() (run, data unsafe.Pointer) {
	return C.vapp_ranks_run, unsafe.Pointer(g.ranks)
}

// Failed returns the error for a status of Launch's function. The group has failed with it: earlier
// collectives may still wait.
func (g *Group) Failed(status int) error {
	err := g.Err()
	if err == nil {
		err = failed(g.ranks.lib, g.String(), "a collective", status)
	}
	g.Abort(err)
	return err
}

// Err returns the error of Abort or of the communicators, or nil.
func (g *Group) Err() error {
	if err := g.abortedBy(); err != nil {
		return err
	}
	if g.ranks == nil {
		return nil
	}
	var detail *C.char
	code := C.vapp_ranks_error(g.ranks, &detail)
	if code == 0 {
		return nil
	}
	e := failed(g.ranks.lib, g.String(), "", int(code))
	e.Detail = C.GoString(detail)
	return e
}

// Memory returns the device bytes of the communicators; ok is false for a library that does not
// report them, those before 2.29.
func (g *Group) Memory() (bytes int64, ok bool) {
	if g.ranks == nil {
		return 0, false
	}
	n := int64(C.vapp_ranks_memory(g.ranks))
	return max(0, n), n >= 0
}

// End ends the collectives of a group that has failed with err, which Err returns from then on.
// Those that wait return, with no result.
func (g *Group) End(err error) error {
	g.Abort(err)
	return g.leave(1)
}

// Leave frees the communicators. No collective of them runs or is launched any more.
func (g *Group) Leave() error {
	aborted := C.int(0)
	if g.abortedBy() != nil {
		aborted = 1
	}
	err := g.leave(aborted)
	C.free(unsafe.Pointer(g.ranks))
	g.ranks = nil
	return err
}

func (g *Group) leave(abort C.int) error {
	if g.ranks == nil {
		return nil
	}
	if code := C.vapp_ranks_leave(g.ranks, abort); code != 0 {
		call := "ncclCommDestroy"
		if abort != 0 {
			call = "ncclCommAbort"
		}
		return failed(g.ranks.lib, g.String(), call, int(code))
	}
	return nil
}
