package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/nearest"
)

// Explanation is how a value of a plan was computed: the formula with its numbers, and the
// formula's source.
type Explanation struct {
	Version int      `json:"version"`
	Item    string   `json:"item"`
	Value   string   `json:"value"`
	Steps   []string `json:"steps"`
	Source  string   `json:"source"`
}

// UnknownItemError reports an item that the plan does not have, with similar ones.
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

// The sources of the formulas.
const (
	fromRecord  = "the model's own forward pass, recorded once and laid out by the code that runs it (engine.NewAccount)"
	fromLayout  = "the backend's layout, by which its device allocates"
	fromPlanner = "the planner's bounds, measured once (appliance/plan/memory.go)"
	fromPool    = "the pool that allocates KV pages (engine/kv)"
	fromProfile = "the profile"
)

// Items lists the items that Explain explains.
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

// Explain returns how an item of Items was computed. The error is an *UnknownItemError.
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
	case name == "workspace":
		p.explainWorkspace(e)
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

// explainLine explains an item by its rule in the ledger.
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
	case name == reserveItem || name == backend.Swap.String():
		return fromProfile
	case name == mappedItem:
		return "the headers of the model's files"
	case slices.Contains([]string{"context", "modules", "stacks", "graphs", "workspace", "item copy", "step copies", "staging"}, name):
		return fromLayout
	}
	return fromPlanner
}

// String returns the explanation as text.
func (e *Explanation) String() string {
	t := &text{width: TextWidth}
	t.hang(e.Item+": ", e.Value)
	for _, s := range e.Steps {
		t.hang("  ", s)
	}
	t.hang("  source: ", e.Source)
	return t.b.String()
}

// JSON writes the explanation as indented JSON.
func (e *Explanation) JSON(w io.Writer) error { return writeIndented(w, e) }
