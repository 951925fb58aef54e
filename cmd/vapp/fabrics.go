package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"vapp.dev/appliance"
	"vapp.dev/appliance/launcher"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/mpi"
	"vapp.dev/engine/backend/nccl"
	"vapp.dev/kernels"
)

// fabrics returns the library of collectives of each backend.
func fabrics() map[string]appliance.Fabric {
	return map[string]appliance.Fabric{"cpu": openMPI{}, "ref": openMPI{}, "cuda": ncclFabric{}}
}

// openMPI connects ranks on CPUs.
type openMPI struct{}

func (openMPI) Open(place launcher.Place, o appliance.FabricOptions) (appliance.Session, error) {
	wire := mpi.F32
	if o.Reduce == kernels.BF16 {
		wire = mpi.BF16
	}
	w, err := mpi.Open(mpi.Options{Library: os.Getenv("VAPP_LIBMPI"), Wait: o.Wait, Wire: wire})
	if err != nil {
		return nil, err
	}
	if w.Rank() != place.Rank || w.Size() != place.World {
		return nil, &launcher.Error{By: place.By, Why: fmt.Sprintf("this process is rank %d of %d, and of %d by MPI as rank %d: on CPUs start the ranks with mpirun, or with srun --mpi=pmix", place.Rank, place.World, w.Size(), w.Rank())}
	}
	return mpiSession{w}, nil
}

// mpiSession is an appliance.Session.
type mpiSession struct{ *mpi.World }

// Broadcast gives rank 0's bytes to all ranks.
func (s mpiSession) Broadcast(b []byte) (bool, error) { return true, s.World.Broadcast(b) }

// Ticket returns nothing: MPI has connected the ranks.
func (mpiSession) Ticket() ([]byte, error) { return nil, nil }

// Connect returns the group of a grid of ranks.
func (s mpiSession) Connect(_ []byte, tensor, pipeline int, _ time.Duration) (backend.Group, error) {
	return s.Group(tensor, pipeline)
}

// ncclFabric connects ranks on GPUs. It finds the others by what rank 0 sends over the control channel.
type ncclFabric struct{}

func (ncclFabric) Open(place launcher.Place, o appliance.FabricOptions) (appliance.Session, error) {
	if o.Reduce == kernels.BF16 {
		return nil, backend.Unsupported("cuda", "parallel.reduce: \"bf16\"", "sums travel in f32 between GPUs; leave the field out")
	}
	n, err := nccl.Version()
	if err != nil {
		return nil, err
	}
	return ncclSession{rank: place.Rank, version: n}, nil
}

// ncclSession is an appliance.Session.
type ncclSession struct{ rank, version int }

func (s ncclSession) Library() string {
	return fmt.Sprintf("NCCL %d.%d.%d", s.version/10000, s.version/100%100, s.version%100)
}

// Broadcast cannot: NCCL has no connection before Connect.
func (ncclSession) Broadcast([]byte) (bool, error) { return false, nil }

// Ticket returns rank 0's unique id.
func (s ncclSession) Ticket() ([]byte, error) {
	if s.rank != 0 {
		return nil, nil
	}
	return nccl.UniqueID()
}

// Connect returns the group, which the device joins when it is opened.
func (s ncclSession) Connect(ticket []byte, tensor, pipeline int, wait time.Duration) (backend.Group, error) {
	return nccl.Connect(ticket, s.rank, tensor, pipeline, wait)
}

// Close does nothing: the device leaves the group.
func (ncclSession) Close() error { return nil }

// pickGPU lets this process see one GPU of the host if a launcher has started several ranks here. It must run before the driver is
// opened.
func pickGPU(getenv func(string) string, setenv func(name, value string) error) error {
	rank, ranks := launcher.Local(getenv)
	if ranks < 2 || getenv(launcher.OwnRank) != "" { // vapp up has picked for its own ranks
		return nil
	}
	return setenv(visibleGPUs, gpuOf(getenv(visibleGPUs), rank))
}

const visibleGPUs = "CUDA_VISIBLE_DEVICES"

// gpuOf returns the GPU of a rank of this host among those that are visible.
func gpuOf(visible string, rank int) string {
	all := strings.Split(visible, ",")
	switch {
	case visible == "":
		return strconv.Itoa(rank)
	case len(all) == 1: // the launcher has picked
		return visible
	case rank < len(all):
		return all[rank]
	}
	return "" // none: the driver says so
}
