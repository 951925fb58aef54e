package models

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// LoRA sizes the slots of low-rank adapters. The zero value has none.
type LoRA struct {
	Slots int // adapters that are loaded at a time, vLLM's max_loras
	Rank  int // the largest rank of an adapter, vLLM's max_lora_rank: one of LoRARanks
}

// LoRARanks are the ranks that slots may have.
var LoRARanks = []int{1, 8, 16, 32, 64, 128, 256, 320, 512}

// maxAdapterSlots bounds LoRA.Slots.
const maxAdapterSlots = 1024

// check refuses impossible sizes of slots.
func (a LoRA) check() error {
	switch {
	case a == LoRA{}:
		return nil
	case a.Slots < 1 || a.Slots > maxAdapterSlots:
		return &UnsupportedError{fmt.Sprintf("room for %d LoRA adapters (lora.maxLoras)", a.Slots), fmt.Sprintf("1 to %d are planned", maxAdapterSlots)}
	case !slices.Contains(LoRARanks, a.Rank):
		return &UnsupportedError{fmt.Sprintf("LoRA rank %d (lora.maxRank)", a.Rank), fmt.Sprintf("it is one of %v", LoRARanks)}
	}
	return nil
}

// adapterModule is a matrix of the checkpoint that adapters may alter.
type adapterModule struct {
	name     string // "model.layers.0.self_attn.q_proj"
	in, out  int    // of the whole matrix
	col0     int    // first input of this rank
	rows     []adapterRows
	index    int // of the modules of the weights
	cols     int // inputs of this rank
	joined   int // outputs of this rank, all modules
	adapters backend.Adapters
}

// adapterRows are outputs of a module: n from row on, at column at of the product's results.
type adapterRows struct {
	row, n, at int
}

// adapt gives a matrix slots of adapters. pieces are its parts.
func (l *loader) adapt(id backend.WeightID, pieces []piece) {
	if l.LoRA.Slots == 0 {
		return
	}
	spec := l.specs[id]
	a := backend.Adapters{Rank: l.LoRA.Rank}
	first, at := len(l.modules), 0
	for i, p := range pieces {
		if p.transposed {
			l.fail(&UnsupportedError{"LoRA adapters of " + p.tensor, "it is stored as [in, out]"})
			return
		}
		t := l.tensor(p.tensor)
		rows := adapterRows{row: p.row0, n: spec.Parts[i].Rows, at: at}
		at += rows.n
		name := strings.TrimSuffix(p.tensor, ".weight")
		if a.Modules == 0 || l.modules[len(l.modules)-1].name != name {
			if a.Modules == backend.MaxModules {
				l.fail(&UnsupportedError{"LoRA adapters of " + spec.Name, fmt.Sprintf("it joins more than %d matrices", backend.MaxModules)})
				return
			}
			l.modules = append(l.modules, adapterModule{name: name, in: int(t.Shape[1]), out: int(t.Shape[0]), col0: p.col0, cols: spec.Cols, joined: spec.Rows, index: a.Modules})
			a.Modules++
		}
		m := &l.modules[len(l.modules)-1]
		m.rows = append(m.rows, rows)
		a.Ends[a.Modules-1] = at
	}
	f := l.activations
	add := func(suffix string, rows, cols int) backend.WeightID {
		return l.add(backend.WeightSpec{Name: spec.Name + suffix, Group: "lora", Rows: rows, Cols: cols, Source: f, Use: backend.Lookup, Unloaded: true})
	}
	a.A = add(".lora_a", l.LoRA.Slots*a.Modules*a.Rank, spec.Cols)
	a.B = add(".lora_b", l.LoRA.Slots*a.Rank, spec.Rows)
	l.specs[id].Adapters = a
	for i := first; i < len(l.modules); i++ {
		l.modules[i].adapters = a
	}
}

// Adaptable is a Model whose programs have slots of adapters (Build.LoRA).
type Adaptable interface {
	// PlaceAdapter writes an adapter to a slot: all rows of the slot in all weights, those that the
	// adapter lacks as zeros. A nil adapter checks nothing and writes zeros. The error is an
	// *UnsupportedError if a module or shape of the adapter is not the model's.
	PlaceAdapter(a *checkpoint.Adapter, slot int, write func(w backend.WeightID, row0 int, data []byte) error) error
}

// adaptable are the modules of a model with slots of adapters.
type adaptable struct {
	modules []adapterModule
	format  kernels.Format
	staged  bool // the model is a pipeline stage: modules of other layers are other stages'
	layers  int  // of all stages
}

// adapters returns the modules of the weights that l has added.
func (l *loader) adapters() adaptable {
	return adaptable{l.modules, l.activations, l.Pipe.World > 1, l.layers}
}

// withoutAdapters calls add, whose matrices get no slots: heads and drafts that adapters do not alter.
func (l *loader) withoutAdapters(add func()) {
	slots := l.LoRA
	l.LoRA = LoRA{}
	add()
	l.LoRA = slots
}

// inDecoder returns a module's name without the name of the decoder: families whose decoder is inside of
// another module also take the names of the decoder alone.
func inDecoder(module string) string {
	for _, prefix := range []string{"model.language_model.", "language_model.model.", "model."} {
		if name, ok := strings.CutPrefix(module, prefix); ok {
			return name
		}
	}
	return module
}

// elsewhere reports whether a module belongs to a layer of another stage.
func (m *adaptable) elsewhere(module string) bool {
	rest, ok := strings.CutPrefix(inDecoder(module), "layers.")
	number, _, _ := strings.Cut(rest, ".")
	i, err := strconv.Atoi(number)
	if !m.staged || !ok || err != nil || i < 0 || i >= m.layers {
		return false
	}
	here := "layers." + number + "."
	return !slices.ContainsFunc(m.modules, func(of adapterModule) bool { return strings.HasPrefix(inDecoder(of.name), here) })
}

// match returns the adapter's matrix of each module, nil where it has none. A matrix that is divided
// among several weights is a module of each.
func (m *adaptable) match(a *checkpoint.Adapter) ([]*checkpoint.AdapterMatrix, error) {
	out := make([]*checkpoint.AdapterMatrix, len(m.modules))
	if a == nil {
		return out, nil
	}
	byName := map[string][]int{}
	for i, of := range m.modules {
		name := inDecoder(of.name)
		byName[name] = append(byName[name], i)
	}
	for k := range a.Modules {
		of := &a.Modules[k]
		at := byName[inDecoder(of.Module)]
		if len(at) == 0 && !m.elsewhere(of.Module) {
			return nil, &UnsupportedError{"an adapter of module " + of.Module, "the model's " + m.kinds() + " of its layers are adapted"}
		}
		for _, i := range at {
			if have := m.modules[i]; of.In != have.in || of.Out != have.out {
				return nil, &UnsupportedError{fmt.Sprintf("an adapter of %s with %d inputs and %d outputs", of.Module, of.In, of.Out),
					fmt.Sprintf("the model's has %d and %d; the adapter is of another base model", have.in, have.out)}
			}
			if out[i] != nil {
				return nil, &UnsupportedError{"an adapter with two matrices of " + of.Module, "each module has one"}
			}
			out[i] = of
		}
	}
	return out, nil
}

// kinds lists the last names of the modules.
func (m *adaptable) kinds() string {
	var out []string
	for _, of := range m.modules {
		if name := of.name[strings.LastIndexByte(of.name, '.')+1:]; !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return strings.Join(out, ", ")
}

// PlaceAdapter implements Adaptable.
func (m *adaptable) PlaceAdapter(a *checkpoint.Adapter, slot int, write func(w backend.WeightID, row0 int, data []byte) error) error {
	found, err := m.match(a)
	if err != nil {
		return err
	}
	for i := 0; i < len(m.modules); {
		of := m.modules[i].adapters
		n, rank := of.Modules, of.Rank
		in, out := m.modules[i].cols, m.modules[i].joined
		down, up := make([]float32, n*rank*in), make([]float32, rank*out)
		for k := range n {
			if found[i+k] == nil {
				continue
			}
			A, B, err := a.Matrices(*found[i+k])
			if err != nil {
				return err
			}
			m.modules[i+k].place(*found[i+k], A, B, down[k*rank*in:], up, out)
		}
		if err := write(of.A, slot*n*rank, checkpoint.EncodeFloats(m.format, down)); err != nil {
			return err
		}
		if err := write(of.B, slot*rank, checkpoint.EncodeFloats(m.format, up)); err != nil {
			return err
		}
		i += n
	}
	return nil
}

// place copies the rank's part of A, [rank, in], and of B, [out, rank], to down and, transposed and
// scaled, to up, whose rows have width columns.
func (m adapterModule) place(of checkpoint.AdapterMatrix, A, B, down, up []float32, width int) {
	for r := range of.Rank {
		copy(down[r*m.cols:(r+1)*m.cols], A[r*of.In+m.col0:])
	}
	for _, p := range m.rows {
		for i := range p.n {
			for r := range of.Rank {
				up[r*width+p.at+i] = float32(float64(B[(p.row+i)*of.Rank+r]) * of.Scale)
			}
		}
	}
}
