package plan

import (
	"fmt"

	"vapp.dev/engine"
	"vapp.dev/schema"
)

// Bounds of the memory of the library by which CPU ranks exchange values. Open MPI 4.1.4 on x86-64
// Linux was measured by what a process has more after MPI_Init, all-reduces of 512 KiB and 2 MiB,
// all-to-all and gathers of 2 MiB and messages of 8 MiB, over shared memory: 9.3 MiB with 2 ranks,
// 12.9 MiB with 4 (over TCP 9.1 MiB with 2), of which 5 to 8 MiB are code that all processes share.
// Each process has a file of 4 MiB in /dev/shm, of which 0.1 to 0.2 MiB were in memory.
// Buffers for the terms of sums (engine/backend/mpi) take 1.5 MiB, and 64 KiB for each rank.
const (
	mpiLibrary = 16 << 20
	mpiShared  = 4 << 20
	mpiTerms   = 3 << 19  // 256 Ki values in f32, and as many in bf16
	mpiPerRank = 64 << 10 // 16 Ki values of f32 of each rank
)

// The device memory of NCCL depends on the links that it finds, so these are the largest published
// figures for one machine: an all-reduce of 4 MB over A100s on NVLink took 544 MiB with 2 ranks and
// 688 MiB with more (github.com/NVIDIA/nccl/issues/964). Messages to 7 other H100s took 3.28 GB,
// 32 channels for each (issues/1685): 447 MiB for one. GPUs without NVLink have 2 to 4 channels, and
// buffers in host memory.
const (
	ncclPair  = 544 << 20
	ncclMany  = 688 << 20
	ncclStage = 448 << 20 // of each stage that this one sends to or receives from
)

const (
	collectivesItem = "collectives"
	controlItem     = "control" // the control channel of the ranks of GPUs, in the host's memory
)

// collectives returns the lines of what ranks take to exchange values and to follow rank 0: on the
// device, and with a GPU in the memory of the host.
func (w resolved) collectives(a *engine.Account) []Item {
	b := w.in.Model.Source.Build
	n := ranks(b)
	if n == 1 {
		return nil
	}
	control := w.control(a)
	if w.onGPU() {
		control.Name, control.Basis = controlItem, Host
		return []Item{w.nccl(), control}
	}
	library := Item{Name: "library", Bytes: mpiLibrary + mpiShared, Basis: Bound,
		Rule: fmt.Sprintf("Open MPI: %v + %v of shared memory", schema.Bytes(mpiLibrary), schema.Bytes(mpiShared))}
	terms := Item{Name: "terms", Bytes: mpiTerms + mpiPerRank*int64(n), Basis: Bound,
		Rule: fmt.Sprintf("of sums: %v + %v × %d ranks", schema.Bytes(mpiTerms), schema.Bytes(mpiPerRank), n)}
	return []Item{{Name: collectivesItem, Bytes: library.Bytes + terms.Bytes + control.Bytes, Basis: Bound,
		Rule: "what ranks exchange, and steps from rank 0 to the others", Parts: []Item{library, terms, control}}}
}

// control returns the Go heap of the control channel. With a pipeline rank 0 fills buffers for the
// classes of all stages. It keeps the encoded step, and the other ranks keep the frame that they
// receive. Items travel in frames of their own, to the ranks of the first stage.
func (w resolved) control(a *engine.Account) Item {
	b := w.in.Model.Source.Build
	set := a.WholeStep.SetBytes()
	it := Item{Name: controlItem, Bytes: set, Basis: Bound, Rule: fmt.Sprintf("a frame of at most %s", Size(set))}
	if b.Pipe.World > 1 && rankOf(w.in.Model) == 0 {
		sets := a.WholeStep.NumSets()
		it.Bytes = mul(set, int64(sets+1))
		it.Rule += fmt.Sprintf(", and step buffers for all stages, %d × %s", sets, Size(set))
	}
	if a.Reservation.Encoder.Rows > 0 && rankOf(w.in.Model) > 0 {
		it.Bytes += engine.ItemFrames
		it.Rule += fmt.Sprintf(", and %s of images that arrive", Size(engine.ItemFrames))
	}
	return it
}

// nccl returns the line of NCCL's buffers on a GPU.
func (w resolved) nccl() Item {
	b := w.in.Model.Source.Build
	it := Item{Name: collectivesItem, Basis: Fitted}
	rule := ""
	switch {
	case b.Shard.World > 2:
		it.Bytes, rule = ncclMany, fmt.Sprintf("%v for sums", schema.Bytes(ncclMany))
	case b.Shard.World == 2:
		it.Bytes, rule = ncclPair, fmt.Sprintf("%v for sums of 2", schema.Bytes(ncclPair))
	}
	if b.Pipe.World > 1 {
		near := 2
		if b.Pipe.Rank == 0 || b.Pipe.Rank == b.Pipe.World-1 {
			near = 1
		}
		it.Bytes += int64(near) * ncclStage
		if rule != "" {
			rule += " + "
		}
		rule += fmt.Sprintf("%d × %v for neighbouring stages", near, schema.Bytes(ncclStage))
	}
	it.Rule = "NCCL: " + rule + "; the most published, on NVLink: less without it"
	return it
}

// controlHeap returns the part of the ledger that the control channel takes of Go's heap.
func (l Ledger) controlHeap() int64 {
	for _, i := range l {
		if i.Name == controlItem {
			return i.Bytes
		}
		for _, p := range i.Parts {
			if i.Name == collectivesItem && p.Name == controlItem {
				return p.Bytes
			}
		}
	}
	return 0
}
