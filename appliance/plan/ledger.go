package plan

import (
	"fmt"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// Basis is how exact a ledger line is, and whether it counts.
type Basis string

// The bases. Exact lines are allocated to the byte. A Bound is an upper limit that the server
// enforces (Go's memory limit) or that was measured once. Fitted is an estimate whose rule
// states its error. Held is kept free by the profile. Apart is not memory of this server. Host
// lines are in the machine's memory while the ledger is that of a GPU; they do not count against
// the budget.
const (
	Exact  Basis = "exact"
	Bound  Basis = "bound"
	Fitted Basis = "fitted"
	Held   Basis = "held"
	Apart  Basis = "apart"
	Host   Basis = "host"
)

// counts reports whether lines of this basis count against the budget.
func (b Basis) counts() bool { return b != Apart && b != Host }

// Item is one line of the ledger.
type Item struct {
	Name  string `json:"item"` // "weights", "kv", …: the label of vapp_plan_bytes
	Bytes int64  `json:"bytes"`
	Basis Basis  `json:"basis"`
	Rule  string `json:"rule"` // the formula that gave the bytes
	// Parts splits Bytes further, for weights by group.
	Parts []Item `json:"parts,omitempty"`
}

// Ledger lists all memory that the server will take; with several devices, on each of them.
type Ledger []Item

// Total returns the sum of all lines that count against the budget, which are those neither
// Apart nor Host. It saturates instead of overflowing.
func (l Ledger) Total() int64 {
	var n int64
	for _, i := range l {
		if i.Basis.counts() {
			n = add(n, i.Bytes)
		}
	}
	return n
}

// HostTotal returns the sum of the Host lines.
func (l Ledger) HostTotal() int64 {
	var n int64
	for _, i := range l {
		if i.Basis == Host {
			n = add(n, i.Bytes)
		}
	}
	return n
}

// Bytes returns the size of a line, 0 if there is none.
func (l Ledger) Bytes(name string) int64 {
	for _, i := range l {
		if i.Name == name {
			return i.Bytes
		}
	}
	return 0
}

// Arenas returns the sizes that a Device must report after start, by arena.
func (l Ledger) Arenas() map[string]int64 {
	out := map[string]int64{}
	for a := backend.Arena(0); a < backend.NumArenas; a++ {
		out[a.String()] = l.Bytes(a.String())
	}
	return out
}

// weightItem returns the line of the weights, with a part for each group and one for the
// rounding of the arena.
func weightItem(r backend.Reservation, l models.LoRA) Item {
	it := Item{Name: backend.Weights.String(), Bytes: r.Arenas[backend.Weights], Basis: Exact}
	at := map[string]int{}
	formats := map[string]string{}
	var sum int64
	for i, w := range r.Weights {
		p := r.Packed[i]
		k, ok := at[w.Group]
		if !ok {
			k = len(it.Parts)
			at[w.Group] = k
			it.Parts = append(it.Parts, Item{Name: w.Group, Basis: Exact})
		}
		it.Parts[k].Bytes += p.Bytes
		sum += p.Bytes
		f := w.Source.String()
		if w.Source == kernels.Invalid {
			f = w.Formats()
		}
		if len(w.Parts) > 0 && strings.HasSuffix(w.Parts[0].Tensor, checkpoint.DecodedSuffix) {
			f = "decoded " + f
		}
		if p.Format != w.Source {
			f += "→" + p.Format.String()
		}
		if w.Use != backend.Vector && !strings.Contains(formats[w.Group], f) {
			formats[w.Group] = strings.TrimPrefix(formats[w.Group]+", "+f, ", ")
		}
	}
	for k, p := range it.Parts {
		if f := formats[p.Name]; f != "" {
			it.Parts[k].Rule = "packed " + f
		} else {
			it.Parts[k].Rule = "vectors, f32"
		}
		if p.Name == loraGroup {
			it.Parts[k].Rule = slotRule(l)
		}
	}
	if pad := it.Bytes - sum; pad > 0 {
		it.Parts = append(it.Parts, Item{Name: "rounding", Bytes: pad, Basis: Exact, Rule: "to the allocation unit"})
	}
	it.Rule = fmt.Sprintf("%s as their kernels read them", numberOf(len(r.Weights), "weight"))
	return it
}

// loraGroup is the group of the weights that are slots of LoRA adapters.
const loraGroup = "lora"

// slotRule describes the slots of LoRA adapters.
func slotRule(l models.LoRA) string {
	return fmt.Sprintf("%s of rank %d (lora.maxLoras, lora.maxRank)", numberOf(l.Slots, "slot"), l.Rank)
}

// listConverted lists the weights that the layout packs in another format than the checkpoint's.
func listConverted(r backend.Reservation) []string {
	var out []string
	seen := map[string]int{}
	for i := range r.Weights {
		if n := r.Packed[i].Note; n != "" {
			if seen[n]++; seen[n] == 1 {
				out = append(out, n)
			}
		}
	}
	for i, n := range out {
		out[i] = fmt.Sprintf("%s: %s", numberOf(seen[n], "weight"), n)
	}
	return out
}
