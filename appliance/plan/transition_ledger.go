package plan

import (
	"fmt"
	"slices"

	"vapp.dev/engine/backend"
)

// join returns the ledger of both engines in one process. With shared weights, these count once; what the process has once
// counts once.
func join(old, new *Plan, shared bool) Ledger {
	if old.resolved.onGPU() != new.resolved.onGPU() {
		return append(slices.Clone(new.Ledger), elsewhere(old, new.resolved.onGPU())...)
	}
	var out Ledger
	for _, name := range itemNames(new.Ledger, old.Ledger) {
		a, hasOld := old.Ledger.item(name)
		b, hasNew := new.Ledger.item(name)
		switch {
		case name == mappedItem && shared:
			continue // no file is read
		case a.Basis == Held || b.Basis == Held || a.Basis == Apart || b.Basis == Apart || name == mappedItem || name == stagingItem:
			if hasNew { // the old engine has loaded its weights
				out = append(out, b)
			}
		case !hasOld:
			out = append(out, b)
		case !hasNew:
			out = append(out, a)
		case name == backend.Weights.String() && shared:
			b.Rule = "kept, used by both engines"
			out = append(out, b)
		case name == childItem || name == "context":
			if a.Bytes > b.Bytes {
				b = a
			}
			out = append(out, b)
		case name == runtimeItem:
			out = append(out, joinRuntime(a, b))
		default:
			out = append(out, joined(a, b))
		}
	}
	return out
}

// joined returns one line for those of two engines.
func joined(a, b Item) Item {
	out := Item{Name: b.Name, Bytes: add(a.Bytes, b.Bytes), Basis: b.Basis, Rule: "of both engines"}
	for _, p := range []struct {
		name string
		Item
	}{{"old", a}, {"new", b}} {
		out.Parts = append(out.Parts, Item{Name: p.name, Bytes: p.Bytes, Basis: p.Basis, Rule: p.Rule})
	}
	return out
}

// joinRuntime is joined for the process: it has two heaps and the threads of both, and its binary once.
func joinRuntime(a, b Item) Item {
	out := joined(a, b)
	out.Bytes -= binaryPages
	out.Parts = append(out.Parts, Item{Name: "binary", Bytes: -binaryPages, Basis: Bound, Rule: "resident once"})
	return out
}

// elsewhere returns the lines of an engine on other memory, as those of a ledger of a GPU or of the machine.
func elsewhere(p *Plan, onGPU bool) Ledger {
	var out Ledger
	for _, i := range p.Ledger {
		switch {
		case i.Basis == Held || i.Basis == Apart, !onGPU && i.Basis != Host: // an engine on a GPU takes nothing of the machine there
			continue
		case onGPU:
			i.Basis = Host
		default:
			i.Basis = Bound
		}
		if i.Name == childItem || i.Name == mappedItem || i.Name == stagingItem {
			continue // the process has children once, and the old engine has loaded its weights
		}
		i.Name, i.Parts = "old "+i.Name, nil
		out = append(out, i)
	}
	return out
}

func (l Ledger) item(name string) (Item, bool) {
	i := slices.IndexFunc(l, func(i Item) bool { return i.Name == name })
	if i < 0 {
		return Item{}, false
	}
	return l[i], true
}

// taken returns the sum of the lines that count, without what is held for others.
func (l Ledger) taken() int64 {
	var n int64
	for _, i := range l {
		if i.Basis.counts() && i.Basis != Held {
			n = add(n, i.Bytes)
		}
	}
	return n
}

// arenas returns the bytes of the plan that are allocated exactly.
func (p *Plan) arenas() int64 {
	var n int64
	for _, i := range p.Ledger {
		if i.Basis == Exact {
			n = add(n, i.Bytes)
		}
	}
	return n
}

// resident returns what an engine of the plan has for certain. Backend ref takes its arenas from the Go heap, where only written
// memory is resident.
func (p *Plan) resident() int64 {
	if p.Backend == "ref" {
		return p.Ledger.Bytes(backend.Weights.String())
	}
	return p.arenas()
}

// footprint returns what both engines take of the memory that New's ledger is of.
func (in ChangeInputs) footprint(both Ledger, shared bool) Footprint {
	old, new := in.Old, in.New
	r := Footprint{New: new.Ledger.taken(), Peak: both.Total(), Limit: new.Budget.Bytes, Rule: new.Budget.Rule}
	resident := in.Resident
	switch onGPU := new.resolved.onGPU(); {
	case old.resolved.onGPU() == onGPU:
		if r.Old = old.Ledger.taken(); resident == 0 {
			resident = old.resident()
		}
	case !onGPU:
		r.Old = old.Ledger.HostTotal()
	}
	if shared {
		r.Shared = new.Ledger.Bytes(backend.Weights.String())
	}
	if free := new.Facts.FreeBytes; in.Running && free > 0 {
		r.lower(add(add(free, resident), new.Ledger.Bytes(reserveItem)), free, resident)
	}
	return r
}

// hostFootprint returns what both engines take of the machine's memory if New's ledger is of a GPU.
func (in ChangeInputs) hostFootprint(both Ledger, shared bool) *Footprint {
	r := &Footprint{New: in.New.Ledger.HostTotal(), Old: in.Old.Ledger.HostTotal(), Peak: both.HostTotal(), Limit: in.Host.Total, Rule: "the machine's memory"}
	if !in.Old.resolved.onGPU() {
		r.Old = in.Old.Ledger.taken()
	}
	if shared {
		r.New -= in.New.Ledger.Bytes(mappedItem)
	}
	if in.Host.Free > 0 {
		r.lower(add(in.Host.Free, in.Host.Resident), in.Host.Free, in.Host.Resident)
	}
	return r
}

// lower sets the limit to n bytes, what is free and what this process has, if that is less.
func (r *Footprint) lower(n, free, resident int64) {
	if r.Limit == 0 || n < r.Limit {
		r.Limit, r.Rule = n, fmt.Sprintf("%s free now + %s of this process", Size(free), Size(resident))
	}
}
