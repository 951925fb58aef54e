// Package launcher finds out which rank of a model this process is: from flags, or from the environment variables of the
// program that started it. It must not start processes or open connections. Start reading at Find.
package launcher

import (
	"errors"
	"fmt"
	"net"
	"strconv"
)

// DefaultPort is where rank 0 listens for the others if nothing names a port.
const DefaultPort = "29555"

// Place is a process's place among the ranks.
type Place struct {
	Rank, World int
	// LocalRank and LocalWorld are those among the ranks of this host; LocalWorld is 0 where the launcher does not
	// say.
	LocalRank, LocalWorld int
	// Leader is rank 0's address for the control channel, HOST:PORT; "": the ranks exchange it by MPI.
	Leader string
	// Networks are those that the ranks may use, as CIDR or names of interfaces, separated by commas; "": any.
	Networks string
	By       string // who said so: "flags", "Open MPI", "Slurm", …
}

// MPI reports whether the launcher makes the ranks one MPI world.
func (p Place) MPI() bool { return p.By == byOpenMPI || p.By == byPMI || p.By == bySlurm }

// Own is the launcher of ranks that `vapp up` has started on this host.
const Own = "vapp up"

// Launchers that start MPI programs.
const (
	byOpenMPI = "Open MPI"
	byPMI     = "PMI"
	bySlurm   = "Slurm"
)

// Flags are the flags of a command; a zero Nodes means that none was given.
type Flags struct {
	Nodes, NodeRank int
	Leader          string
}

// Error is a place that is incomplete or contradicts itself.
type Error struct {
	By, Why string
}

func (e *Error) Error() string { return e.By + ": " + e.Why }

// source reads the place from the variables of one launcher; ok is false if it did not start this process.
type source struct {
	by   string
	read func(v variables) (p Place, ok bool, err error)
}

// sources are asked in this order, and the first that answers decides.
var sources = []source{
	{Own, readOwn},
	{byOpenMPI, readOpenMPI},
	{byPMI, readPMI},
	{bySlurm, readSlurm},
	{"LeaderWorkerSet", readLWS},
	{"torchrun's variables", readTorch},
}

// Find returns the place of this process; World is 1 if no launcher started it. ranks is how many ranks the profile
// has. It fails if the launcher has started another number, or says too little.
func Find(f Flags, getenv func(string) string, ranks int) (Place, error) {
	p, err := find(f, getenv)
	if err != nil {
		return Place{}, err
	}
	if f.Leader != "" {
		if p.Leader, err = address(f.Leader, ""); err != nil {
			return Place{}, &Error{"--leader", err.Error()}
		}
	}
	if p.World > 1 && p.World != ranks {
		return Place{}, &Error{p.By, fmt.Sprintf("this is rank %d of %d and the profile has %d ranks (parallel.tensor × parallel.pipeline); start that many, or change the profile", p.Rank, p.World, ranks)}
	}
	return p, nil
}

// Local returns this process's number among the ranks of its host, and how many these are; 0 where no launcher says.
func Local(getenv func(string) string) (rank, ranks int) {
	p, err := find(Flags{}, getenv)
	if err != nil {
		return 0, 0 // Find reports it
	}
	return p.LocalRank, p.LocalWorld
}

func find(f Flags, getenv func(string) string) (Place, error) {
	if f.Nodes > 0 {
		if f.NodeRank < 0 || f.NodeRank >= f.Nodes {
			return Place{}, &Error{"--node-rank", fmt.Sprintf("%d of %d nodes; allowed: 0 to %d", f.NodeRank, f.Nodes, f.Nodes-1)}
		}
		if f.Leader == "" && f.Nodes > 1 {
			return Place{}, &Error{"--nodes", "name rank 0's address too: --leader HOST:PORT"}
		}
		return Place{Rank: f.NodeRank, World: f.Nodes, By: "flags"}, nil
	}
	for _, s := range sources {
		p, ok, err := s.read(variables{getenv})
		switch {
		case err != nil:
			return Place{}, &Error{s.by, err.Error()}
		case !ok:
			continue
		case p.World < 1 || p.Rank < 0 || p.Rank >= p.World:
			return Place{}, &Error{s.by, fmt.Sprintf("rank %d of %d", p.Rank, p.World)}
		}
		p.By = s.by
		return p, nil
	}
	return Place{World: 1}, nil
}

// variables reads environment variables.
type variables struct{ getenv func(string) string }

// numbers reads integers; ok is false if the first is not set. The others must be.
func (v variables) numbers(names ...string) (out []int, ok bool, err error) {
	for i, name := range names {
		text := v.getenv(name)
		if text == "" && i == 0 {
			return nil, false, nil
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, false, fmt.Errorf("%s is %q and not a number", name, text)
		}
		out = append(out, n)
	}
	return out, true, nil
}

// optional reads an integer that need not be there.
func (v variables) optional(name string) int {
	n, _ := strconv.Atoi(v.getenv(name))
	return n
}

// The variables by which `vapp up` places the ranks that it starts itself.
const (
	OwnRank   = "VAPP_RANK"
	OwnWorld  = "VAPP_RANKS"
	OwnLeader = "VAPP_RANKS_LEADER"
	OwnKey    = "VAPP_RANKS_KEY"
)

func readOwn(v variables) (Place, bool, error) {
	n, ok, err := v.numbers(OwnRank, OwnWorld)
	if !ok || err != nil {
		return Place{}, ok, err
	}
	leader, err := address(v.getenv(OwnLeader), "")
	return Place{Rank: n[0], World: n[1], LocalRank: n[0], LocalWorld: n[1], Leader: leader}, true, err
}

func readOpenMPI(v variables) (Place, bool, error) {
	n, ok, err := v.numbers("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
	if !ok || err != nil {
		return Place{}, ok, err
	}
	return Place{Rank: n[0], World: n[1], LocalRank: v.optional("OMPI_COMM_WORLD_LOCAL_RANK"), LocalWorld: v.optional("OMPI_COMM_WORLD_LOCAL_SIZE"), Networks: v.getenv("OMPI_MCA_btl_tcp_if_include")}, true, nil
}

// readPMI reads the variables of process managers of MPI such as Hydra. A Slurm step has them too and says more itself.
func readPMI(v variables) (Place, bool, error) {
	if v.getenv("SLURM_STEP_ID") != "" {
		return Place{}, false, nil
	}
	n, ok, err := v.numbers("PMI_RANK", "PMI_SIZE")
	if !ok || err != nil {
		return Place{}, ok, err
	}
	return Place{Rank: n[0], World: n[1]}, true, nil
}

// readSlurm reads the variables of a step (srun); a batch script alone is no rank.
func readSlurm(v variables) (Place, bool, error) {
	if v.getenv("SLURM_STEP_ID") == "" {
		return Place{}, false, nil
	}
	n, ok, err := v.numbers("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
	if !ok || err != nil {
		return Place{}, ok, err
	}
	return Place{Rank: n[0], World: n[1], LocalRank: v.optional("SLURM_LOCALID")}, true, nil
}

func readLWS(v variables) (Place, bool, error) {
	n, ok, err := v.numbers("LWS_WORKER_INDEX", "LWS_GROUP_SIZE")
	if !ok || err != nil {
		return Place{}, ok, err
	}
	leader, err := address(v.getenv("LWS_LEADER_ADDRESS"), DefaultPort)
	return Place{Rank: n[0], World: n[1], Leader: leader}, true, err
}

func readTorch(v variables) (Place, bool, error) {
	n, ok, err := v.numbers("RANK", "WORLD_SIZE")
	if !ok || err != nil {
		return Place{}, ok, err
	}
	port := v.getenv("MASTER_PORT")
	if port == "" {
		port = DefaultPort
	}
	if n[1] == 1 {
		return Place{World: 1}, true, nil
	}
	leader, err := address(v.getenv("MASTER_ADDR"), port)
	return Place{Rank: n[0], World: n[1], LocalRank: v.optional("LOCAL_RANK"), LocalWorld: v.optional("LOCAL_WORLD_SIZE"), Leader: leader}, true, err
}

// address returns HOST:PORT of a text that may lack the port.
func address(text, port string) (string, error) {
	if text == "" {
		return "", errors.New("rank 0's address is missing")
	}
	host, p, err := net.SplitHostPort(text)
	if err != nil {
		if port == "" {
			return "", fmt.Errorf("%q is not HOST:PORT", text)
		}
		host, p = text, port
	}
	if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 || host == "" {
		return "", fmt.Errorf("%q is not HOST:PORT", text)
	}
	return net.JoinHostPort(host, p), nil
}
