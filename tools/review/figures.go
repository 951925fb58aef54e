package review

import (
	"fmt"
	"reflect"

	"vapp.dev/appliance/plan"
)

// Figures are the values of a plan that a review compares. Sizes are bytes, lengths tokens.
type Figures struct {
	Model       string     `json:"model"`
	Machine     string     `json:"machine"`
	Total       int64      `json:"total_bytes"`
	Budget      int64      `json:"budget_bytes"` // 0: unknown
	Ledger      []Line     `json:"ledger"`
	KVTokens    int64      `json:"kv_tokens"`
	MaxModelLen int        `json:"max_model_len"`
	MaxNumSeqs  int        `json:"max_num_seqs"`
	Lengths     []Fit      `json:"lengths"` // the last is the longest
	Decisions   []Decision `json:"decisions"`
}

// Line is a line of the memory ledger.
type Line struct {
	Item  string     `json:"item"`
	Bytes int64      `json:"bytes"`
	Basis plan.Basis `json:"basis"`
}

// Fit is the number of sequences of a length that the KV cache holds.
type Fit struct {
	Tokens    int `json:"tokens"`
	Sequences int `json:"sequences"`
}

// Decision is a value that the profile leaves to the plan.
type Decision struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// FiguresOf returns the figures of a plan.
func FiguresOf(p *plan.Plan) *Figures {
	f := &Figures{
		Model: p.Model.Source, Machine: fmt.Sprintf("%s · %s", p.Backend, p.Facts.Device),
		Total: p.Ledger.Total(), Budget: p.Budget.Bytes,
		KVTokens: p.Capacity.Tokens, MaxModelLen: p.Options.MaxModelLen, MaxNumSeqs: p.Options.MaxNumSeqs,
		Ledger: []Line{}, Lengths: []Fit{}, Decisions: []Decision{},
	}
	if p.Facts.TotalBytes > 0 {
		f.Machine += " · " + plan.Size(p.Facts.TotalBytes)
	}
	for _, i := range p.Ledger {
		f.Ledger = append(f.Ledger, Line{i.Name, i.Bytes, i.Basis})
	}
	for _, l := range p.Capacity.Lengths {
		f.Lengths = append(f.Lengths, Fit{l.Tokens, l.Sequences})
	}
	for _, c := range p.Choices {
		f.Decisions = append(f.Decisions, Decision{c.Name, c.Value})
	}
	return f
}

func (f *Figures) same(g *Figures) bool { return reflect.DeepEqual(f, g) }
