//go:build cgo && linux

package mpi

/*
#include "library.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"vapp.dev/engine/backend"
)

// group is a rank's view of its stage and of the stages. A Send returns when the next stage has the value or MPI has a
// copy of it.
type group struct {
	w            *World
	tensor, pipe backend.Shard
	rows         *C.vapp_comm // the tensor parallel ranks of this stage
	stages       *C.vapp_comm // the ranks of all stages that have this rank's place among the tensor parallel ones
}

func (g *group) Tensor() backend.Shard { return g.tensor }
func (g *group) Pipe() backend.Shard   { return g.pipe }

// Abort ends this rank's call. The caller informs the other processes: MPI does not.
func (g *group) Abort(err error) { g.w.abort(err) }

func (g *group) AllReduce(x []float32) error {
	if g.tensor.World == 1 || len(x) == 0 {
		return g.w.failed()
	}
	return g.w.call("all_reduce", pointer(x), 0, func(p unsafe.Pointer) C.int {
		return C.vapp_mpi_all_reduce(g.w.m, g.rows, (*C.float)(p), C.int64_t(len(x)), C.int(g.w.options.Wire))
	})
}

func (g *group) AllGather(x, y []float32, cols int) error {
	if cols <= 0 || len(x)%cols != 0 || len(y) != len(x)*g.tensor.World {
		return g.w.abort(fmt.Errorf("mpi: all_gather of %d numbers in rows of %d to %d", len(x), cols, len(y)))
	}
	if g.tensor.World == 1 || len(x) == 0 {
		copy(y, x)
		return g.w.failed()
	}
	return g.w.call("all_gather", pointer(y), 4*int64(cols), func(p unsafe.Pointer) C.int {
		return C.vapp_mpi_all_gather(g.w.m, g.rows, (*C.float)(pointer(x)), (*C.float)(p), C.int64_t(len(x)/cols), C.int64_t(cols))
	})
}

func (g *group) Send(x []float32) error {
	if g.pipe.Rank+1 == g.pipe.World {
		return g.w.abort(fmt.Errorf("mpi: the last of %d stages sends", g.pipe.World))
	}
	return g.w.call("send", pointer(x), 4*int64(len(x)), func(p unsafe.Pointer) C.int {
		return C.vapp_mpi_send(g.w.m, g.stages, (*C.float)(p), C.int(4*len(x)))
	})
}

func (g *group) Receive(x []float32) error {
	if g.pipe.Rank == 0 {
		return g.w.abort(fmt.Errorf("mpi: the first of %d stages receives", g.pipe.World))
	}
	return g.w.call("receive", pointer(x), 4*int64(len(x)), func(p unsafe.Pointer) C.int {
		return C.vapp_mpi_receive(g.w.m, g.stages, (*C.float)(p), C.int(4*len(x)))
	})
}

func pointer(x []float32) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(x)) }
