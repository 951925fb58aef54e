// Package nccl connects the ranks of one model by NVIDIA's library of collectives. A rank is a
// process with a GPU; its collectives are launches on the GPU's stream, and nodes of captured
// graphs.
//
// It must not know programs, weights or the CUDA driver. Start reading at Connect in this file,
// then Join in group.go; nccl.c calls the library.
//
// The library is opened at the first use, so a binary with this package starts on machines
// without it. Other builds than those for Linux with cgo and the tag cuda have no library:
// UniqueID and Connect fail with ErrNotBuilt.
package nccl

import (
	"fmt"
	"sync"
	"time"

	"vapp.dev/engine/backend"
)

const name = "nccl"

// Group is a rank among tensor parallel ranks and pipeline stages. Backend cuda joins it when it
// opens a device, and launches its collectives.
type Group struct {
	id           []byte
	tensor, pipe backend.Shard
	wait         time.Duration
	native

	mu      sync.Mutex
	aborted error
	stop    chan struct{} // closed by Abort
}

var _ backend.Group = (*Group)(nil)

// Connect returns the group of a rank: rank = stage · tensor + rank among the tensor parallel ranks. id is
// UniqueID's of rank 0. All ranks join when their devices open; each waits for the others at most
// wait. Errors: ErrNotBuilt, *NoLibrary, *TooOld, backend.ErrUnsupported for impossible numbers.
func Connect(id []byte, rank, tensor, pipe int, wait time.Duration) (backend.Group, error) {
	if tensor < 1 || pipe < 1 || rank < 0 || rank >= tensor*pipe {
		return nil, backend.Unsupported(name, fmt.Sprintf("rank %d", rank), fmt.Sprintf("there are %d tensor parallel ranks in %d stages", tensor, pipe))
	}
	if len(id) != IDBytes {
		return nil, backend.Unsupported(name, fmt.Sprintf("an id of %d bytes", len(id)), fmt.Sprintf("rank 0's has %d: all ranks have to be of one version of vapp", IDBytes))
	}
	if _, err := Version(); err != nil {
		return nil, err
	}
	return &Group{
		id: append([]byte(nil), id...), wait: wait, stop: make(chan struct{}),
		tensor: backend.Shard{Rank: rank % tensor, World: tensor}, pipe: backend.Shard{Rank: rank / tensor, World: pipe},
	}, nil
}

// IDBytes is the size of UniqueID's result.
const IDBytes = 128

// Tensor returns this rank among those that share each matrix.
func (g *Group) Tensor() backend.Shard { return g.tensor }

// Pipe returns this rank's stage.
func (g *Group) Pipe() backend.Shard { return g.pipe }

// world returns this rank among all.
func (g *Group) world() backend.Shard {
	return backend.Shard{Rank: g.pipe.Rank*g.tensor.World + g.tensor.Rank, World: g.tensor.World * g.pipe.World}
}

// String returns the rank's name in errors: "rank 1 of 4".
func (g *Group) String() string { return fmt.Sprintf("rank %d of %d", g.world().Rank, g.world().World) }

// Abort makes Err return err, the first one of all calls. The device that has joined the group
// then ends its collectives, also those that wait.
func (g *Group) Abort(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.aborted == nil {
		g.aborted = err
		close(g.stop)
	}
}

// abortedBy returns the error of the first Abort, or nil.
func (g *Group) abortedBy() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.aborted
}

// AllReduce, AllGather, Send and Receive of numbers in the host's memory are not NCCL's: they
// fail with backend.ErrUnsupported.
func (g *Group) AllReduce([]float32) error                 { return onHost("all_reduce") }
func (g *Group) AllGather([]float32, []float32, int) error { return onHost("all_gather") }
func (g *Group) Send([]float32) error                      { return onHost("send") }
func (g *Group) Receive([]float32) error                   { return onHost("receive") }

func onHost(op string) error {
	return backend.Unsupported(name, "op "+op, "NCCL connects GPUs: take backend cuda, or connect other ranks by MPI")
}

// Kind is what a launch does.
type Kind int32

// The kinds. X and Y are of float32; World is the number of tensor parallel ranks.
const (
	// AllReduce adds the ranks' X to Y. The library chooses the order, so it is the same for every
	// size only for two ranks.
	AllReduce Kind = iota
	// Exchange sends part r of X, as Part returns it, to tensor parallel rank r. Y gets this rank's
	// part of every rank's X, one behind the other.
	Exchange
	// Spread sends this rank's part of X to all ranks. Y gets the parts of the others; X is Y.
	Spread
	// AllGather sets Y [World,Count] to the X of every rank.
	AllGather
	// Send sends X to the next stage, Receive fills Y with what the previous one sent.
	Send
	Receive
)

// Args are the arguments of a launch.
type Args struct {
	X, Y  uint64 // device addresses
	Count int32  // numbers of X; of Y for Receive
	Kind  Kind
}

// Part returns where rank r's part of count numbers begins and ends, for Exchange and Spread.
func Part(count, r, world int) (begin, end int) { return count * r / world, count * (r + 1) / world }
