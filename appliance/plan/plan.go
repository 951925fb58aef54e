// Package plan is what will fit, before anything starts: a profile, the facts
// of a model and the facts of a machine become a Plan, a value that lists every
// byte the server will hold and everything it can carry with them.
//
// Make is pure: it opens no device, reads no clock and does no I/O, so the same
// inputs give the same Plan to the byte. Arenas come from engine.NewAccount,
// which runs the model's own load and largest step on the backend's layout: the
// engine allocates by the same code, so a plan of arenas cannot be wrong. What
// cannot be derived (heaps of Go and of the text library) is a line with a
// bound, whose constants memory.go states.
package plan

import (
	"fmt"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
	"vapp.dev/schema"
)

// Inputs is everything a plan depends on.
type Inputs struct {
	Profile *schema.Profile
	Model   *engine.Model
	Opener  backend.Opener // only Name and Layout are called
	Facts   backend.Facts
}

// Plan is what a server will hold and what it can carry. It does not change.
type Plan struct {
	Profile  string // its name
	Model    Model
	Backend  string
	Facts    backend.Facts
	Options  engine.Options  // to open the engine with
	Account  *engine.Account // what the engine will hold under Options
	Ledger   Ledger
	Budget   Budget
	Capacity Capacity
	// Choices is what was decided and why: the backend's choices and the
	// planner's own, such as the KV cache's format.
	Choices []backend.Choice
	Kernels []Kernel // who reads the weights
	// Shapes is which kernel ops of a shape run by, where that follows the rows of a step.
	Shapes    []backend.KernelChoice
	Converted []string // weights that are not kept in the checkpoint's format
	Warnings  []string
	// PlanOnly is why vapp up would refuse what is planned; empty: it would not.
	PlanOnly []string
	// Ranks is how many devices hold a ledger like this one, at least 1.
	Ranks int
	// GoMemoryLimit is the Go runtime's memory limit (GOMEMLIMIT) in bytes,
	// which keeps the runtime line's bound.
	GoMemoryLimit int64
	// BodyBytes is the budget of request bodies in memory, a part of the Go heap.
	BodyBytes int64
}

// Model is what the plan says of its model.
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

// Budget is what the ledger may sum to.
type Budget struct {
	Bytes int64  `json:"bytes"` // 0: unknown, only with memory.kvCache
	Rule  string `json:"rule"`
}

// Kernel is one way weights are stored and read.
type Kernel struct {
	Format string `json:"format"` // as stored
	Name   string `json:"kernel"`
	Count  int    `json:"weights"`
	Bytes  int64  `json:"bytes"`
}

// Make plans: wishes (wish.go) turns the profile into what is wanted, solve
// (solve.go) finds the options that fit, and plan writes the ledger (memory.go).
// The error is a *schema.Error for a field that cannot be honoured, a
// *DoesNotFitError where memory is too small, a *ContractError where the plan does
// not meet what the profile requires, or names what the backend or the family
// lacks.
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
	return p, w.checkContracts(p)
}

// plan turns a solution into the Plan that prints.
func (w resolved) plan(s solution) (_ *Plan, err error) {
	acct := *s.account
	if isDerived(s.account) {
		if acct, err = w.finalAccount(s); err != nil {
			return nil, err
		}
	}
	acct.Reservation.Arenas[backend.KV] = acct.Layout.Round(s.options.KVBytes)
	p := &Plan{
		Profile: w.in.Profile.Name, Model: modelFacts(w.in.Model), Backend: w.in.Opener.Name(), Facts: w.in.Facts,
		Options: s.options, Account: &acct, Ledger: w.ledger(s.options, &acct), Budget: w.budget(),
		Ranks: ranks(w.in.Model.Source.Build),
	}
	if total := p.Ledger.Total(); p.Budget.Bytes > 0 && total > p.Budget.Bytes {
		return nil, fmt.Errorf("plan: the ledger sums to %d bytes, above its budget of %d", total, p.Budget.Bytes)
	}
	p.Capacity = w.capacity(s.options, &acct)
	p.Choices = append(acct.Layout.Choices(), w.choices(s.options)...)
	p.Kernels = kernelsOf(acct.Reservation)
	if p.Shapes, err = shapesOf(&acct); err != nil {
		return nil, err
	}
	p.Converted = listConverted(acct.Reservation)
	p.Warnings, p.PlanOnly = w.warnings(), w.planOnly(&acct)
	p.BodyBytes = w.bodies()
	p.GoMemoryLimit = goMemoryLimit(p.Backend, p.Ledger)
	return p, nil
}

// ranks is how many devices a model built so lies on.
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

// formatOf is what a weight is packed as; parts may be packed in several formats.
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
