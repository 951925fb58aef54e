package main

import (
	"fmt"
	"os"
	"time"

	"vapp.dev/appliance"
	"vapp.dev/appliance/launcher"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/mpi"
	"vapp.dev/kernels"
)

// fabrics returns the library of collectives of each backend.
func fabrics() map[string]appliance.Fabric {
	return map[string]appliance.Fabric{"cpu": openMPI{}, "ref": openMPI{}}
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
