//go:build cgo && linux

package mpi

/*
#include "library.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"time"
	"unsafe"

	"vapp.dev/engine/backend"
)

// TimeAllReduce returns the median time on this rank of a sum of n numbers over all processes by a group's AllReduce,
// and by the library's blocking MPI_Allreduce, in turns, as OSU's micro-benchmarks call it. All processes call it. The
// library's call cannot be interrupted.
func (w *World) TimeAllReduce(n, rounds int) (own, library time.Duration, err error) {
	if n <= 0 || rounds <= 0 || w.size == 1 {
		return 0, 0, fmt.Errorf("mpi: timing an all_reduce of %d numbers, %d times, on %d ranks", n, rounds, w.size)
	}
	g := &group{w: w, tensor: backend.Shard{Rank: w.rank, World: w.size}, pipe: backend.Shard{World: 1}, rows: w.all}
	x := make([]float32, n)
	blocking := func() error {
		return w.call("MPI_Allreduce", pointer(x), 4*int64(n), func(p unsafe.Pointer) C.int {
			return C.vapp_mpi_library_all_reduce(w.m, w.all, (*C.float)(p), C.int(n))
		})
	}
	var times [2][]time.Duration
	for range rounds {
		for which, call := range []func() error{func() error { return g.AllReduce(x) }, blocking} {
			// The first calls of a turn only bring the ranks together.
			for i := range warm + turn {
				begin := time.Now()
				if err := call(); err != nil {
					return 0, 0, err
				}
				if i >= warm {
					times[which] = append(times[which], time.Since(begin))
				}
			}
		}
	}
	median := func(t []time.Duration) time.Duration { slices.Sort(t); return t[len(t)/2] }
	return median(times[0]), median(times[1]), nil
}

// Calls of a turn: the first ones are not timed.
const warm, turn = 5, 20
