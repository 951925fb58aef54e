package plan

import (
	"fmt"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/sched"
	"vapp.dev/engine/speculate"
	"vapp.dev/kernels"
)

// Decisions are what the plan of rank 0 has fixed for all ranks: the numbers of engine.Options but
// those of the machine, and but the queue and the target of latency, which are rank 0's and live. Slabs are in place of bytes, since slabs of stages differ in size.
type Decisions struct {
	MaxModelLen         int             `json:"max_model_len"`
	MaxNumSeqs          int             `json:"max_num_seqs"`
	MaxNumBatchedTokens int             `json:"max_num_batched_tokens"`
	BlockSize           int             `json:"block_size"`
	KVFormat            kernels.Format  `json:"kv_format"`
	Slabs               int             `json:"slabs"`
	SwapSlabs           int             `json:"swap_slabs"`
	PrefixCaching       bool            `json:"prefix_caching"`
	ChunkedPrefill      bool            `json:"chunked_prefill"`
	Overlap             bool            `json:"overlap"`
	Drafts              int             `json:"drafts"`
	Lookup              speculate.NGram `json:"lookup"`
	EveryRow            bool            `json:"every_row"`
	Policy              sched.Policy    `json:"policy"`
	Reduce              kernels.Format  `json:"reduce"`
	Variant             string          `json:"variant"` // as set; "": each machine's best, which Digest compares
	Activations         string          `json:"activations"`
	Favor               string          `json:"favor"`
	Linear              string          `json:"linear"`
	Graphs              backend.Graphs  `json:"graphs"`
}

// Decisions returns what p has decided for all ranks.
func (p *Plan) Decisions() Decisions {
	return decisionsOf(p.Options, p.Account.Slabs(p.Options.KVBytes), p.Account.Slabs(p.Options.SwapBytes))
}

func decisionsOf(o engine.Options, slabs, swap int) Decisions {
	return Decisions{
		MaxModelLen: o.MaxModelLen, MaxNumSeqs: o.MaxNumSeqs, MaxNumBatchedTokens: o.MaxNumBatchedTokens,
		BlockSize: o.BlockSize, KVFormat: o.KVFormat, Slabs: slabs, SwapSlabs: swap, PrefixCaching: o.PrefixCaching,
		ChunkedPrefill: o.ChunkedPrefill, Overlap: o.Overlap, Drafts: o.Drafts, Lookup: o.Lookup, EveryRow: o.EveryRow,
		Policy: o.Policy, Reduce: o.Reduce, Variant: o.Backend.Variant, Activations: o.Backend.Activations,
		Favor: o.Backend.Favor, Linear: o.Backend.Linear, Graphs: o.Backend.Graphs,
	}
}

// apply returns o with the decisions, and without the sizes of arenas.
func (d Decisions) apply(o engine.Options) engine.Options {
	o.MaxModelLen, o.MaxNumSeqs, o.MaxNumBatchedTokens = d.MaxModelLen, d.MaxNumSeqs, d.MaxNumBatchedTokens
	o.BlockSize, o.KVFormat, o.KVBytes, o.SwapBytes = d.BlockSize, d.KVFormat, 0, 0
	o.PrefixCaching, o.ChunkedPrefill, o.Overlap, o.Drafts = d.PrefixCaching, d.ChunkedPrefill, d.Overlap, d.Drafts
	o.Lookup, o.EveryRow, o.Policy, o.Reduce = d.Lookup, d.EveryRow, d.Policy, d.Reduce
	o.Backend.Variant, o.Backend.Activations, o.Backend.Favor = d.Variant, d.Activations, d.Favor
	o.Backend.Linear, o.Backend.Graphs = d.Linear, d.Graphs
	return o
}

// RankDoesNotFitError reports that the memory of a machine is too small for its rank with the
// decisions of rank 0. Unwrap returns a *schema.Error with the position of the field.
type RankDoesNotFitError struct {
	Rank       int
	Device     string
	Need, Have int64 // bytes
	Rule       string

	placed error
}

func (e *RankDoesNotFitError) Error() string { return e.placed.Error() }

// Unwrap returns the error with the position of memory.utilization or memory.kvCache.
func (e *RankDoesNotFitError) Unwrap() error { return e.placed }

// Follow returns the plan of rank i on p's machine with the decisions of rank 0. The error is a
// *RankDoesNotFitError if this machine's memory is too small for them.
func (p *Plan) Follow(i int, d Decisions) (*RankPlan, error) { return p.resolved.follow(i, d) }

// Follow is Plan.Follow without a plan: the machine need not fit decisions of its own.
func Follow(in Inputs, i int, d Decisions) (*RankPlan, error) {
	w, err := resolve(in)
	if err != nil {
		return nil, err
	}
	return w.follow(i, d)
}

func (w resolved) follow(i int, d Decisions) (*RankPlan, error) {
	r, err := w.rankPlan(i, d)
	if err != nil {
		return nil, err
	}
	w.in.Facts = r.Facts
	need, budget := r.Ledger.Total(), w.budget()
	if need <= w.limit() {
		return r, nil
	}
	field := "memory.utilization"
	if w.kvCache > 0 {
		field = "memory.kvCache"
	}
	return nil, &RankDoesNotFitError{Rank: i, Device: r.Facts.Device, Need: need, Have: budget.Bytes, Rule: budget.Rule, placed: w.in.Profile.Reject(field,
		"rank %d of %d needs %s on %s, there is %s (%s): rank 0 has planned %s of %s with everything else; lower the field on all ranks, or give this machine as much memory as that of rank 0",
		i, ranks(w.in.Model.Source.Build), Size(need), r.Facts.Device, Size(budget.Bytes), budget.Rule, numberOfGroup(d.Slabs, "KV slab"), Size(r.Account.KV.SlabBytes))}
}

// String returns the rank and its place: "rank 3 (tensor 2/2, stage 2/2)".
func (r *RankPlan) String() string {
	return fmt.Sprintf("rank %d (tensor %d/%d, stage %d/%d)", r.Rank, r.Tensor.Rank+1, r.Tensor.World, r.Pipe.Rank+1, r.Pipe.World)
}
