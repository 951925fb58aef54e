package plan

import (
	"fmt"
	"strings"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
	"vapp.dev/schema"
)

// hostRanks returns how many ranks share the memory and the cores of a machine.
func hostRanks(in Inputs) int {
	if in.Opener.Name() == "cuda" {
		return 1 // a rank has a GPU of its own
	}
	return max(1, in.Profile.CPU.Ranks)
}

// checkRanks refuses a number of ranks on a machine into which the ranks of the model cannot be
// divided.
func checkRanks(in Inputs) error {
	p, n := in.Profile, hostRanks(in)
	all := p.Parallel.Ranks()
	if all%n == 0 {
		return nil
	}
	return p.Reject("cpu.ranks", "%d do not divide the model's %s (parallel.tensor %d × parallel.pipeline %d); allowed: %s",
		n, numberOf(all, "rank"), max(1, p.Parallel.Tensor), max(1, p.Parallel.Pipeline), divisors(all))
}

// divisors lists the numbers that divide n: "1, 2 or 4".
func divisors(n int) string {
	var out []string
	for i := 1; i <= n; i++ {
		if n%i == 0 {
			out = append(out, fmt.Sprint(i))
		}
	}
	if len(out) == 1 {
		return out[0]
	}
	return strings.Join(out[:len(out)-1], ", ") + " or " + out[len(out)-1]
}

// share returns the facts of a rank's part of a machine on which n ranks run: an n-th of its memory
// and of its cores, and its NUMA nodes if the ranks have whole nodes. local is which of them.
func share(f backend.Facts, n, local int) backend.Facts {
	if n <= 1 {
		return f
	}
	f.TotalBytes, f.FreeBytes = f.TotalBytes/int64(n), f.FreeBytes/int64(n)
	if f.Cores > 0 {
		f.Cores = max(1, f.Cores/n)
	}
	nodes := nodesOf(f, n, local)
	if f.Nodes = nil; len(nodes) == 0 {
		return f
	}
	if f.Cores = 0; len(nodes) > 1 {
		f.Nodes = nodes // memory and threads of one node are placed by binding the process
	}
	for _, node := range nodes {
		f.Cores += len(node.CPUs)
	}
	return f
}

// nodesOf returns the NUMA nodes of one of the n ranks on a machine; nil if they do not have whole nodes.
func nodesOf(f backend.Facts, n, local int) []backend.Node {
	per := len(f.Nodes) / max(1, n)
	if n <= 1 || per == 0 || len(f.Nodes)%n != 0 {
		return nil
	}
	return f.Nodes[local*per:][:per]
}

// Reduce returns the format in which values travel that ranks sum; Invalid for one rank.
func Reduce(p *schema.Profile) kernels.Format {
	switch {
	case p.Parallel.Ranks() == 1:
		return kernels.Invalid
	case p.Parallel.Reduce == "bf16":
		return kernels.BF16
	}
	return kernels.F32
}

// withStages returns w with the models of its distinct pipeline stages, of the first tensor parallel
// rank, which holds what the others hold and the biases of sums. Stages that hold the same kinds of
// layers in the same order are one.
func (w resolved) withStages() (resolved, error) {
	b := w.in.Model.Source.Build
	if b.Pipe.World <= 1 {
		w.stages, w.stageOf = []*engine.Model{w.in.Model}, []int{0}
		return w, nil
	}
	w.stages, w.stageOf = nil, nil
	seen := map[string]int{}
	for rank := range b.Pipe.World {
		m, err := w.in.Model.With(rankBuild(b, rank*max(1, b.Shard.World)))
		if err != nil {
			return w, err
		}
		d := newDigest()
		d.add(stageWeights(m), m.Family.Classes(w.options.BlockSize, w.options.KVFormat), rank == 0, rank == b.Pipe.World-1)
		at, ok := seen[d.sum()]
		if !ok {
			at = len(w.stages)
			seen[d.sum()] = at
			w.stages = append(w.stages, m)
		}
		w.stageOf = append(w.stageOf, at)
	}
	w.in.Model = w.stages[0]
	return w, nil
}

// stageWeights returns what the memory of a stage's weights depends on.
func stageWeights(m *engine.Model) []backend.WeightSpec {
	out := append([]backend.WeightSpec(nil), m.Family.Weights()...)
	for i := range out {
		out[i].Name, out[i].Parts = "", nil
	}
	return out
}

// rankBuild returns the build of rank i: ranks of a stage follow each other.
func rankBuild(b models.Build, i int) models.Build {
	tensor := max(1, b.Shard.World)
	b.Shard = backend.Shard{Rank: i % tensor, World: tensor}
	b.Pipe = backend.Shard{Rank: i / tensor, World: max(1, b.Pipe.World)}
	return b
}

// rankOf returns the number of the rank that holds m.
func rankOf(m *engine.Model) int {
	b := m.Source.Build
	return b.Pipe.Rank*max(1, b.Shard.World) + b.Shard.Rank
}

// RankPlan is the plan of one rank.
type RankPlan struct {
	Rank          int // stage × tensor + tensor rank
	Tensor, Pipe  backend.Shard
	Model         *engine.Model // the rank's part; the model that was planned closes its files
	Options       engine.Options
	Account       *engine.Account // with the arenas of Options
	Ledger        Ledger
	Slabs         int           // of the KV arena, the same on all ranks
	SwapSlabs     int           // of swap space, the same on all ranks
	Facts         backend.Facts // the rank's part of the machine
	GoMemoryLimit int64         // bytes, as Plan.GoMemoryLimit
	CPUs          []int         // of the rank's NUMA nodes, to which it is bound; nil: it is not bound
}

// RankPlan returns the plan of rank i by p's decisions, for a machine like p's.
func (p *Plan) RankPlan(i int) (*RankPlan, error) { return p.resolved.rankPlan(i, p.Decisions()) }

// rankPlan returns the plan of rank i by these decisions. It does not check that it fits.
func (w resolved) rankPlan(i int, d Decisions) (*RankPlan, error) {
	b := w.in.Model.Source.Build
	if n := ranks(b); i < 0 || i >= n {
		return nil, fmt.Errorf("plan: rank %d of %d ranks", i, n)
	}
	m, err := w.in.Model.With(rankBuild(b, i))
	if err != nil {
		return nil, err
	}
	w = w.at(m)
	host := hostRanks(w.in)
	w.in.Facts = share(w.host, host, i%host)
	var cpus []int
	if w.in.Profile.CPU.NUMA != "off" {
		for _, n := range nodesOf(w.host, host, i%host) {
			cpus = append(cpus, n.CPUs...)
		}
	}
	o := d.apply(w.options)
	a, err := engine.NewAccount(o, m, w.in.Opener, w.in.Facts)
	if err != nil {
		return nil, err
	}
	if most := a.Pool.MaxSlabs(); d.Slabs < 1 || d.Slabs > most || d.SwapSlabs < 0 || d.SwapSlabs > most {
		return nil, fmt.Errorf("plan: rank %d: %d slabs and %d of swap space; at most %d", i, d.Slabs, d.SwapSlabs, most)
	}
	o.KVBytes, o.SwapBytes = int64(d.Slabs)*a.KV.SlabBytes, int64(d.SwapSlabs)*a.KV.SlabBytes
	a.Reservation.Arenas[backend.KV] = a.Layout.Round(o.KVBytes)
	a.Reservation.Arenas[backend.Swap] = a.Layout.Round(o.SwapBytes)
	b = m.Source.Build
	r := &RankPlan{CPUs: cpus, Rank: i, Tensor: b.Shard, Pipe: b.Pipe, Model: m, Options: o, Account: a, Ledger: w.ledger(o, a), Slabs: d.Slabs, SwapSlabs: d.SwapSlabs, Facts: w.in.Facts}
	r.GoMemoryLimit = goMemoryLimit(w.in.Opener.Name(), r.Ledger)
	return r, nil
}
