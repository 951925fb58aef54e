//go:build cgo && linux

package mpi

/*
#cgo CFLAGS: -O3
#cgo LDFLAGS: -ldl
#include "library.h"
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"vapp.dev/engine/backend"
)

// World is this process's place in MPI_COMM_WORLD.
type World struct {
	m        *C.vapp_mpi
	all      *C.vapp_comm
	comms    []*C.vapp_comm // of groups, freed by Close
	options  Options
	library  string
	host     string
	main     chan func() // run by the thread that called MPI_Init
	calls    sync.Mutex  // MPI's calls come one at a time (MPI_THREAD_SERIALIZED)
	closed   bool
	pending  []unsafe.Pointer // memory of calls that ended before their messages
	mu       sync.Mutex       // guards err
	err      error            // the first error; after it there is no call of MPI
	rank     int
	size     int
	provided C.int
}

// opened is whether this process has called MPI_Init, which it can do once.
var opened atomic.Bool

// Open loads Open MPI and starts it. It waits for the other processes of mpirun, at most Options.Wait; without a
// launcher there is one rank. After an error of the start the process should end: MPI may still wait in the
// background.
func Open(o Options) (*World, error) {
	if o.Wait == 0 {
		o.Wait = DefaultWait
	}
	if !opened.CompareAndSwap(false, true) {
		return nil, errors.New("mpi: this process has opened MPI before, and can do so once")
	}
	w := &World{options: o, rank: -1, main: make(chan func())}
	w.host, _ = os.Hostname()
	w.rank, w.size = launched()
	if err := w.load(); err != nil {
		opened.Store(false)
		return nil, err
	}
	w.all = newComm()
	go func() {
		runtime.LockOSThread() // MPI_Finalize belongs to the thread of MPI_Init
		for f := range w.main {
			f()
		}
	}()
	if err := w.collective("MPI_Init_thread", func() C.int { return C.vapp_mpi_init(w.m, &w.provided, w.all) }); err != nil {
		return nil, err
	}
	w.rank, w.size = int(w.all.rank), int(w.all.size)
	if w.provided < serialized {
		err := &LibraryError{w.library, fmt.Sprintf("it was built without threads (level %d)", w.provided), "use a build with MPI_THREAD_SERIALIZED"}
		return nil, errors.Join(err, w.Close())
	}
	if z := sizesOf(w.size, o.Wire); C.vapp_mpi_allocate(w.m, C.int(w.size), part, C.int64_t(z.direct), C.int64_t(z.incoming), C.int(o.Wire)) != 0 {
		return nil, errors.Join(fmt.Errorf("mpi: no memory for buffers of %d bytes", Buffer(w.size, o.Wire)), w.Close())
	}
	return w, nil
}

// serialized is MPI_THREAD_SERIALIZED.
const serialized = 2

// launched returns the rank and the number of processes that mpirun has announced, -1 and 1 without it.
func launched() (rank, size int) {
	rank, size = -1, 1
	if n, err := strconv.Atoi(os.Getenv("OMPI_COMM_WORLD_RANK")); err == nil {
		rank = n
	}
	if n, err := strconv.Atoi(os.Getenv("OMPI_COMM_WORLD_SIZE")); err == nil {
		size = n
	}
	return rank, size
}

func newComm() *C.vapp_comm { return (*C.vapp_comm)(C.calloc(1, C.sizeof_vapp_comm)) }

// Rank returns this process's rank among Size processes.
func (w *World) Rank() int { return w.rank }
func (w *World) Size() int { return w.size }

// Library returns name and version of the library, "Open MPI 4.1.4".
func (w *World) Library() string { return w.library }

// Broadcast fills b, which has the same length on all ranks, with rank 0's.
func (w *World) Broadcast(b []byte) error {
	if w.size == 1 || len(b) == 0 {
		return w.failed()
	}
	return w.call("broadcast", unsafe.Pointer(unsafe.SliceData(b)), int64(len(b)), func(p unsafe.Pointer) C.int {
		return C.vapp_mpi_broadcast(w.m, w.all, p, C.int(len(b)), C.int64_t(w.options.Wait))
	})
}

// Group makes this process rank Rank mod tensor of stage Rank / tensor. All processes call it, with the same numbers.
func (w *World) Group(tensor, pipe int) (backend.Group, error) {
	if tensor <= 0 || pipe <= 0 || tensor*pipe != w.size {
		return nil, fmt.Errorf("mpi: tensor %d × pipeline %d is %d ranks, and the launcher started %d processes: start as many (mpirun -n %d)",
			tensor, pipe, tensor*pipe, w.size, tensor*pipe)
	}
	g := &group{w: w, rows: newComm(), stages: newComm(),
		tensor: backend.Shard{Rank: w.rank % tensor, World: tensor}, pipe: backend.Shard{Rank: w.rank / tensor, World: pipe}}
	err := w.collective("MPI_Comm_split", func() C.int {
		if rc := C.vapp_mpi_split(w.m, w.all, C.int(g.pipe.Rank), C.int(g.tensor.Rank), g.rows); rc != 0 {
			return rc
		}
		return C.vapp_mpi_split(w.m, w.all, C.int(g.tensor.Rank), C.int(g.pipe.Rank), g.stages)
	})
	if err != nil {
		return nil, err
	}
	w.comms = append(w.comms, g.rows, g.stages)
	return g, nil
}

// Close ends MPI, when all processes call it. After an abort it returns at once and leaves MPI as it is: the end of
// this process is then what mpirun sees.
func (w *World) Close() error {
	if w.closed || w.failed() != nil {
		return nil
	}
	err := w.collective("MPI_Finalize", func() C.int {
		for _, c := range w.comms {
			if rc := C.vapp_mpi_free(w.m, c); rc != 0 {
				return rc
			}
		}
		return C.vapp_mpi_finalize(w.m)
	})
	if err != nil {
		return err
	}
	w.closed = true
	close(w.main)
	return nil
}

// collective makes a call that MPI cannot interrupt, on the thread of MPI_Init. It waits at most Options.Wait; then the
// world has failed, and the thread stays in MPI.
func (w *World) collective(what string, f func() C.int) error {
	w.calls.Lock()
	defer w.calls.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	done := make(chan C.int, 1)
	w.main <- func() { done <- f() }
	timer := time.NewTimer(w.options.Wait)
	defer timer.Stop()
	select {
	case rc := <-done:
		return w.result(what, rc)
	case <-timer.C:
		return w.abort(&WaitError{what, w.rank, w.size, w.host, w.options.Wait})
	}
}

// call makes a call that an abort interrupts. p, of bytes bytes, is memory of Go that MPI reads or writes: it stays
// referenced where messages may still arrive.
func (w *World) call(what string, p unsafe.Pointer, bytes int64, f func(p unsafe.Pointer) C.int) error {
	if bytes > maxMessage {
		return w.abort(fmt.Errorf("mpi: %s of %d bytes: a message of MPI has at most %d", what, bytes, maxMessage))
	}
	w.calls.Lock()
	defer w.calls.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	rc := f(p)
	if rc != 0 {
		w.pending = append(w.pending, p)
	}
	return w.result(what, rc)
}

// maxMessage is the largest number of bytes of an MPI message: its count is an int.
const maxMessage = 1<<31 - 1

// usable returns why there can be no call of MPI.
func (w *World) usable() error {
	if err := w.failed(); err != nil {
		return err
	}
	if w.closed {
		return errors.New("mpi: a call after Close")
	}
	return nil
}

// failed returns the first error.
func (w *World) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// abort keeps the first error, which it returns, and ends a call that waits.
func (w *World) abort(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	C.vapp_mpi_abort(w.m)
	return w.err
}
