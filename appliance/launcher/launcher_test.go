package launcher

import (
	"errors"
	"strings"
	"testing"
)

// TestFind: the first launcher that is there decides, and what it says must be whole.
func TestFind(t *testing.T) {
	for name, c := range map[string]struct {
		flags Flags
		env   string // NAME=value, separated by spaces
		want  Place
		err   string
	}{
		"nobody":    {want: Place{World: 1}},
		"flags":     {flags: Flags{2, 1, "a:1"}, env: "RANK=0 WORLD_SIZE=4", want: Place{Rank: 1, World: 2, Leader: "a:1", By: "flags"}},
		"mpirun":    {env: "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_MCA_btl_tcp_if_include=eth1 RANK=7", want: Place{Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, Networks: "eth1", By: "Open MPI"}},
		"address":   {flags: Flags{Leader: "h:9"}, env: "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", want: Place{Rank: 1, World: 2, Leader: "h:9", By: "Open MPI"}},
		"srun":      {env: "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 PMI_RANK=0 PMI_SIZE=1", want: Place{Rank: 1, World: 2, By: "Slurm"}},
		"sbatch":    {env: "SLURM_PROCID=0 SLURM_NTASKS=2", want: Place{World: 1}},
		"lws":       {env: "LWS_WORKER_INDEX=1 LWS_GROUP_SIZE=2 LWS_LEADER_ADDRESS=x-0.x.default", want: Place{Rank: 1, World: 2, Leader: "x-0.x.default:29555", By: "LeaderWorkerSet"}},
		"torchrun":  {env: "RANK=1 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=7 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", want: Place{Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, Leader: "10.0.0.1:7", By: "torchrun's variables"}},
		"alone":     {env: "RANK=0 WORLD_SIZE=1", want: Place{World: 1, By: "torchrun's variables"}},
		"own":       {env: "VAPP_RANK=1 VAPP_RANKS=2 VAPP_RANKS_LEADER=[::1]:5 RANK=0", want: Place{Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, Leader: "[::1]:5", By: "vapp up"}},
		"another":   {env: "RANK=0 WORLD_SIZE=3 MASTER_ADDR=a", err: "torchrun's variables: this is rank 0 of 3 and the profile has 2 ranks"},
		"no number": {env: "OMPI_COMM_WORLD_RANK=x OMPI_COMM_WORLD_SIZE=2", err: `Open MPI: OMPI_COMM_WORLD_RANK is "x" and not a number`},
		"half":      {env: "RANK=1", err: `WORLD_SIZE is "" and not a number`},
		"nowhere":   {env: "RANK=1 WORLD_SIZE=2", err: "rank 0's address is missing"},
		"no port":   {flags: Flags{2, 1, "a"}, err: `--leader: "a" is not HOST:PORT`},
		"no leader": {flags: Flags{2, 1, ""}, err: "--nodes: name rank 0's address too: --leader HOST:PORT"},
		"too many":  {flags: Flags{2, 2, "a:1"}, err: "--node-rank: 2 of 2 nodes; allowed: 0 to 1"},
		"beyond":    {env: "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=2", err: "Open MPI: rank 2 of 2"},
	} {
		env := map[string]string{}
		for _, f := range strings.Fields(c.env) {
			k, v, _ := strings.Cut(f, "=")
			env[k] = v
		}
		got, err := Find(c.flags, func(k string) string { return env[k] }, 2)
		var typed *Error
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || !errors.As(err, &typed)):
			t.Errorf("%s: %v, want %q", name, err, c.err)
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
	}
}
