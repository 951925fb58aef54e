package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/nearest"
)

// Explanation is how a figure of a plan came about: the formula with its numbers,
// and where the formula is from.
type Explanation struct {
	Version int      `json:"version"`
	Item    string   `json:"item"`
	Value   string   `json:"value"`
	Steps   []string `json:"steps"`
	Source  string   `json:"source"`
}

// UnknownItemError names an item that the plan has not, with those near to it.
type UnknownItemError struct {
	Item string
	Near []string
	All  []string
}

func (e *UnknownItemError) Error() string {
	if len(e.Near) > 0 {
		return fmt.Sprintf("the plan has no item %q; did you mean %s?", e.Item, strings.Join(e.Near, ", "))
	}
	return fmt.Sprintf("the plan has no item %q; it has %s", e.Item, strings.Join(e.All, ", "))
}

// Where the formulas are from.
const (
	fromRecord  = "the model's own forward pass, recorded once and laid out by the code that runs it (engine.NewAccount)"
	fromLayout  = "the backend's layout, by which its device allocates"
	fromPlanner = "the planner's bounds, measured once (appliance/plan/memory.go)"
	fromPool    = "the pool that hands out KV pages (engine/kv)"
	fromProfile = "the profile"
)

// Items lists what Explain knows.
func (p *Plan) Items() []string {
	out := []string{"total", "budget", "capacity", "concurrency", "admitted"}
	for _, i := range p.Ledger {
		out = append(out, i.Name)
		for _, part := range i.Parts {
			out = append(out, i.Name+"."+part.Name)
		}
	}
	for _, c := range p.Capacity.Classes {
		out = append(out, "kv."+c.Name)
	}
	return out
}

// Explain says how an item of Items came about. The error is an *UnknownItemError.
func (p *Plan) Explain(item string) (*Explanation, error) {
	e := &Explanation{Version: Version, Item: item}
	name, part, _ := strings.Cut(item, ".")
	switch {
	case !slices.Contains(p.Items(), item):
		return nil, &UnknownItemError{item, nearest.Names(item, p.Items(), 3), p.Items()}
	case name == "weights":
		p.explainWeights(e, part)
	case name == "kv" && part == "":
		p.explainKV(e)
	case name == "kv":
		p.explainClass(e, part)
	case name == "scratch":
		p.explainScratch(e)
	case name == "step":
		p.explainStep(e)
	case name == "capacity" || name == "concurrency":
		p.explainConcurrency(e)
	case name == "admitted":
		p.explainAdmitted(e)
	case name == "total" || name == "budget":
		p.explainTotal(e)
	default:
		p.explainLine(e, name, part)
	}
	return e, nil
}

func (e *Explanation) step(format string, args ...any) {
	e.Steps = append(e.Steps, fmt.Sprintf(format, args...))
}

func bytesOf(n int64) string { return fmt.Sprintf("%s B (%s)", Group(n), Size(n)) }

// explainLine is for what the ledger's own rule says in full.
func (p *Plan) explainLine(e *Explanation, name, part string) {
	for _, i := range p.Ledger {
		if i.Name != name {
			continue
		}
		list := append([]Item{i}, i.Parts...)
		for _, it := range list {
			if part != "" && it.Name != part || part == "" && it.Name != name {
				continue
			}
			e.Value = bytesOf(it.Bytes) + ", " + string(it.Basis)
			e.step("%s", it.Rule)
			if part == "" {
				for _, x := range i.Parts {
					e.step("%s: %s = %s", x.Name, x.Rule, bytesOf(x.Bytes))
				}
			}
		}
		e.Source = lineSource(name, i.Basis)
	}
}

func lineSource(name string, b Basis) string {
	switch {
	case name == reserveItem || name == swapItem || name == loraItem:
		return fromProfile
	case name == mappedItem:
		return "the headers of the model's files"
	case name == "context" || name == "modules" || name == "graphs" || name == "workspace":
		return fromLayout
	}
	return fromPlanner
}

// explainWeights lists the shapes of a group, or of all; layers alike are one
// line.
func (p *Plan) explainWeights(e *Explanation, group string) {
	r := p.Account.Reservation
	count, bytes := map[string]int{}, map[string]int64{}
	var order []string
	var sum int64
	for i, w := range r.Weights {
		if group != "" && w.Group != group {
			continue
		}
		k := shapeOf(w, r.Packed[i])
		if count[k] == 0 {
			order = append(order, k)
		}
		count[k]++
		bytes[k] += r.Packed[i].Bytes
		sum += r.Packed[i].Bytes
	}
	if group == "rounding" || group == "" {
		pad := r.Arenas[backend.Weights] - weightSum(r)
		if group == "rounding" {
			sum = pad
		} else {
			sum += pad
		}
		defer e.step("rounding of the arena to the allocation unit = %s", bytesOf(pad))
	}
	for _, k := range order {
		e.step("%d × %s = %s", count[k], k, bytesOf(bytes[k]))
	}
	e.Value, e.Source = bytesOf(sum)+", exact", fromLayout
}

func weightSum(r backend.Reservation) int64 {
	var n int64
	for _, p := range r.Packed {
		n += p.Bytes
	}
	return n
}

// shapeOf is a weight without the number of its layer.
func shapeOf(w backend.WeightSpec, p backend.Packed) string {
	var name []string
	for _, s := range strings.Split(w.Name, ".") {
		if strings.Trim(s, "0123456789") == "" {
			s = "*"
		}
		name = append(name, s)
	}
	s := fmt.Sprintf("%s %s × %s", strings.Join(name, "."), Group(int64(w.Rows)), Group(int64(w.Cols)))
	if w.Experts > 0 {
		s += fmt.Sprintf(" × %d experts", w.Experts)
	}
	s += " " + p.Format.String()
	if n := w.Scales(); n > 0 {
		s += fmt.Sprintf(", %s scales %v", Group(n), w.Scaling)
	}
	return s
}

// explainScratch names the largest values of the recorded step.
func (p *Plan) explainScratch(e *Explanation) {
	e.Value, e.Source = bytesOf(p.Account.Reservation.Arenas[backend.Scratch])+", exact", fromRecord
	for _, pr := range p.Account.Reservation.Programs {
		e.step("program %s: %d values over %d ops, each at a fixed offset; what lives at once peaks at %s", pr.Name, len(pr.Values), len(pr.Ops), bytesOf(pr.Scratch))
		byName := map[string]backend.ValueInfo{}
		for _, v := range pr.Values {
			if v.Bytes > byName[v.Name].Bytes {
				byName[v.Name] = v
			}
		}
		var list []backend.ValueInfo
		for _, v := range byName {
			list = append(list, v)
		}
		slices.SortFunc(list, func(a, b backend.ValueInfo) int {
			if a.Bytes != b.Bytes {
				return int(min(1, max(-1, b.Bytes-a.Bytes)))
			}
			return strings.Compare(a.Name, b.Name)
		})
		for _, v := range list[:min(5, len(list))] {
			e.step("%s: %s rows × %s %v = %s", v.Name, Group(int64(pr.Rows(v.Rows))), Group(int64(v.Cols)), v.Format, bytesOf(v.Bytes))
		}
	}
}

func (p *Plan) explainStep(e *Explanation) {
	s := p.Account.Reservation.Step
	e.Value, e.Source = bytesOf(p.Account.Reservation.Arenas[backend.StepIO])+", exact", "the step buffers' own layout (engine/backend)"
	e.step("two sets of %s: one is filled while the other runs", bytesOf(s.SetBytes()))
	e.step("%s tokens × 12 B, %s sequences, %s sampled rows", Group(int64(s.Tokens)), Group(int64(s.Seqs)), Group(int64(s.Samples)))
	for i, w := range s.MaxPages {
		e.step("page table of %s: %s sequences × %s pages × 4 B", p.Capacity.Classes[i].Name, Group(int64(s.Seqs)), Group(int64(w)))
	}
	e.step("two bit masks of the vocabulary for every sampled row: %s × 2 × %s words × 4 B", Group(int64(s.Samples)), Group(int64(s.MaskWords())))
	e.step("logit edits: %s rows × %s × 8 B", Group(int64(s.Samples)), Group(int64(s.Bias)))
}

// String is the explanation for a person.
func (e *Explanation) String() string {
	t := &text{width: TextWidth}
	t.hang(e.Item+": ", e.Value)
	for _, s := range e.Steps {
		t.hang("  ", s)
	}
	t.hang("  source: ", e.Source)
	return t.b.String()
}

// JSON prints the explanation for a program, indented.
func (e *Explanation) JSON(w io.Writer) error { return indented(w, e) }
