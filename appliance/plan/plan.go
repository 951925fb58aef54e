// Package plan computes what fits before a server starts. From a profile, the facts of a model
// and the facts of a machine it makes a Plan: the memory that the server will take, byte by
// byte, and the capacity of its KV cache.
//
// The sizes of arenas come from engine.NewAccount, which runs the model's own load and largest
// step on the backend's layout. The engine allocates by the same code, so planned and real sizes
// are equal. Memory that cannot be derived, such as the heaps of Go and of the text library, has
// a line with an upper bound; memory.go states the constants.
//
// It must not open a device, read a clock or do I/O, so that equal inputs give equal Plans.
// Start reading at Make in plan.go.
package plan

import (
	"fmt"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/models"
	"vapp.dev/engine/speed"
	"vapp.dev/kernels"
	"vapp.dev/schema"
)

// Inputs is everything that a plan depends on.
type Inputs struct {
	Profile *schema.Profile
	Model   *engine.Model
	Opener  backend.Opener // only Name and Layout are called
	Facts   backend.Facts
	// Host is the memory of this machine, for a plan on one of its GPUs; zero: unknown, and nothing is compared with it.
	Host HostMemory
	// Rates are what vapp doctor --measure found on this machine; nil: NoRates is why there are none.
	Rates   *speed.Rates
	NoRates string
}

// Plan is the memory and the capacity of a server. It is immutable.
type Plan struct {
	Profile string // name of the profile
	// Overridden are the flags that replace values of the profile; InMemory: it is in no file.
	Overridden []string
	InMemory   bool
	Model      Model
	Backend    string
	Facts      backend.Facts
	Options    engine.Options  // options of the engine
	Account    *engine.Account // memory of the engine with Options
	Ledger     Ledger
	Budget     Budget
	Capacity   Capacity
	// Choices are the decisions with their reasons: the backend's choices, and the planner's
	// own, such as the KV cache's format.
	Choices []backend.Choice
	Kernels []Kernel // kernels that read the weights
	// Favored lists the kernels among which cpu.favor selects, for each format with several.
	Favored []Favored
	// Shapes lists the kernel of each op and shape, if the kernel depends on the rows of a step.
	Shapes    []backend.KernelChoice
	Converted []string // weights that are packed in another format than the checkpoint's
	Warnings  []string
	slots     models.LoRA // of adapters
	// PlanOnly lists why vapp up would refuse the plan; empty: it would not.
	PlanOnly []string
	// Ranks is the number of devices, at least 1. Options, Account and Ledger are those of the rank
	// whose memory is the tightest; RankPlan returns those of the others.
	Ranks    int
	Tightest int // its number
	// GoMemoryLimit is the Go runtime's memory limit (GOMEMLIMIT) in bytes. It enforces the
	// bound of the runtime line.
	GoMemoryLimit int64
	// BodyBytes is the memory limit of request bodies, a part of the Go heap.
	BodyBytes int64
	// Speed is the predicted speed, of a plan of WithSpeed; nil: it was not asked for.
	Speed *Speed

	// What the verdict needs in addition.
	utilization float64 // memory.utilization; 0 if memory.kvCache is given
	autoLen     bool    // maxModelLen is auto
	absent      string  // why the weights cannot be loaded
	contracts   []metContract
	offer       *offer
	resolved    resolved // what plans of ranks are made from
	// What speed is predicted from.
	rates   *speed.Rates
	noRates string
}

// Model holds the facts of the model that a plan prints.
type Model struct {
	Source       string       `json:"source"`
	Where        engine.Where `json:"facts"` // checkpoint, config, catalogue
	Architecture string       `json:"architecture"`
	Layers       int          `json:"layers"`
	Hidden       int          `json:"hidden_size"`
	Heads        int          `json:"heads"`
	KVHeads      int          `json:"kv_heads"`
	HeadDim      int          `json:"head_dim"`
	Vocab        int          `json:"vocab_size"`
	Longest      int          `json:"max_position_embeddings"` // tokens
	Dtype        string       `json:"dtype"`
	Weights      int64        `json:"weights"` // elements
}

// Budget is the limit of the ledger's total.
type Budget struct {
	Bytes int64  `json:"bytes"` // 0: unknown, only with memory.kvCache
	Rule  string `json:"rule"`
}

// Kernel is a kernel that reads weights, with the weights' format.
type Kernel struct {
	Format string `json:"format"` // as stored
	Name   string `json:"kernel"`
	Count  int    `json:"weights"`
	Bytes  int64  `json:"bytes"`
}

// Make plans in three stages: resolve (resolve.go) resolves the profile against the model and
// the backend, solve (solve.go) finds the options that fit, and plan writes the ledger
// (memory.go). The error is a *schema.Error for a field that cannot be satisfied, a
// *DoesNotFitError if memory is too small, a *ContractError or a *LatencyError if the plan does not
// meet the profile's requirements, or names what the backend or the model family does not support.
func Make(in Inputs) (*Plan, error) {
	w, err := resolve(in)
	if err != nil {
		return nil, err
	}
	s, err := w.solve()
	if err != nil {
		return nil, w.explain(err)
	}
	p, err := w.plan(s)
	if err != nil {
		return nil, err
	}
	if err := w.checkContracts(p); err != nil {
		return p, err
	}
	if err := w.checkLatencies(p); err != nil {
		return p, err
	}
	p.offer = w.findOffer(p)
	return p, nil
}

// plan turns a solution into a Plan.
func (w resolved) plan(s solution) (_ *Plan, err error) {
	w = w.at(s.model)
	acct := *s.account
	if isDerived(s.account) {
		if acct, err = w.finalAccount(s); err != nil {
			return nil, err
		}
	}
	acct.Reservation.Arenas[backend.KV] = acct.Layout.Round(s.options.KVBytes)
	acct.Reservation.Arenas[backend.Swap] = acct.Layout.Round(int64(acct.Slabs(s.options.SwapBytes)) * acct.KV.SlabBytes)
	p := &Plan{
		Profile: w.in.Profile.Name, Model: modelFacts(w.in.Model), Backend: w.in.Opener.Name(), Facts: w.in.Facts,
		Options: s.options, Account: &acct, slots: w.in.Model.Source.Build.LoRA, Ledger: w.ledger(s.options, &acct), Budget: w.budget(),
		Ranks: ranks(w.in.Model.Source.Build), Tightest: rankOf(w.in.Model), utilization: w.utilization, autoLen: w.options.MaxModelLen == 0,
		resolved: w, InMemory: w.in.Profile.InMemory(), rates: w.in.Rates, noRates: w.in.NoRates,
	}
	for _, o := range w.in.Profile.Overrides() {
		p.Overridden = append(p.Overridden, o.From)
	}
	if total := p.Ledger.Total(); p.Budget.Bytes > 0 && total > p.Budget.Bytes {
		return nil, fmt.Errorf("plan: the ledger sums to %d bytes, above its budget of %d", total, p.Budget.Bytes)
	}
	p.Capacity = w.capacity(s.options, &acct)
	p.Choices = append(w.layoutChoices(acct.Layout), w.choices(s.options)...)
	p.Kernels, p.Favored = kernelsOf(acct.Reservation), w.favored()
	if p.Shapes, err = shapesOf(&acct); err != nil {
		return nil, err
	}
	p.Converted = listConverted(acct.Reservation)
	p.Warnings, p.PlanOnly = w.warnings(), w.planOnly(&acct)
	p.BodyBytes = w.bodies()
	if err := w.in.Model.Loadable(); err != nil {
		p.absent = err.Error()
	}
	p.GoMemoryLimit = goMemoryLimit(p.Backend, p.Ledger)
	return p, nil
}

// ranks returns the number of devices that hold a model built with b.
func ranks(b models.Build) int { return max(1, b.Shard.World) * max(1, b.Pipe.World) }

func modelFacts(m *engine.Model) Model {
	c := m.Config
	out := Model{
		Source: m.Source.Name, Where: m.Where, Architecture: c.Architecture, Layers: c.NumLayers, Hidden: c.HiddenSize,
		Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, Vocab: c.VocabSize,
		Longest: c.MaxPositionEmbeddings, Dtype: m.Dtype.String(),
	}
	whole := m
	if b := m.Source.Build; ranks(b) > 1 {
		b.Shard, b.Pipe = backend.Whole, backend.Whole
		if all, err := m.With(b); err == nil {
			whole = all
		}
	}
	for _, w := range whole.Family.Weights() {
		if len(w.Parts) > 0 && w.Parts[0].Values == nil {
			out.Weights += w.Elems()
		}
	}
	return out
}

// formatOf returns the format that a weight is packed in, or the formats of its parts.
func formatOf(w backend.WeightSpec, p backend.Packed) string {
	if p.Format == kernels.Invalid {
		return w.Formats()
	}
	return p.Format.String()
}

func kernelsOf(r backend.Reservation) []Kernel {
	var out []Kernel
	at := map[Kernel]int{}
	for i := range r.Weights {
		p := r.Packed[i]
		key := Kernel{Format: formatOf(r.Weights[i], p), Name: p.Kernel}
		if r.Weights[i].Use == backend.Vector {
			key.Name = "vectors"
		}
		k, ok := at[key]
		if !ok {
			k = len(out)
			at[key] = k
			out = append(out, key)
		}
		out[k].Count++
		out[k].Bytes += p.Bytes
	}
	return out
}
