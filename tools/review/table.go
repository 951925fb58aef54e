package review

import (
	"strconv"

	"vapp.dev/appliance/plan"
)

// row is a figure on both sides; nil where a side has no such figure.
type row struct {
	name     string
	old, new *int64
	bytes    bool
}

func (r row) moved() bool {
	return (r.old == nil) != (r.new == nil) || r.old != nil && *r.old != *r.new
}

// change returns the difference as text, "" where there is none.
func (r row) change() string {
	if r.old == nil || r.new == nil || *r.old == *r.new {
		return ""
	}
	d := *r.new - *r.old
	sign := "+"
	if d < 0 {
		sign, d = "−", -d
	}
	if r.bytes {
		return sign + plan.Size(d)
	}
	return sign + plan.Group(d)
}

// cell formats one side of a row.
func cell(n *int64) string {
	if n == nil {
		return "–"
	}
	return plan.Group(*n)
}

// table collects rows by name, in the order of their first use.
type table struct {
	rows []row
	at   map[string]int
}

func (t *table) add(side int, name string, n int64, bytes bool) {
	if t.at == nil {
		t.at = map[string]int{}
	}
	i, ok := t.at[name]
	if !ok {
		i = len(t.rows)
		t.at[name] = i
		t.rows = append(t.rows, row{name: name, bytes: bytes})
	}
	if side == 0 {
		t.rows[i].old = &n
	} else {
		t.rows[i].new = &n
	}
}

// figures returns the figures of both sides; nil where a side has none.
func (c *Change) figures() [2]*Figures {
	var both [2]*Figures
	for i, s := range []*State{c.Old, c.New} {
		if s != nil {
			both[i] = s.Figures
		}
	}
	return both
}

// memory returns the ledger before and after.
func (c *Change) memory() []row {
	var t table
	for side, f := range c.figures() {
		if f == nil {
			continue
		}
		for _, l := range f.Ledger {
			t.add(side, l.Item, l.Bytes, true)
		}
	}
	for side, f := range c.figures() {
		if f != nil {
			t.add(side, "total", f.Total, true)
		}
	}
	return t.rows
}

// capacity returns the fits before and after, by rising length.
func (c *Change) capacity() []row {
	var t table
	lengths := map[int]bool{}
	for side, f := range c.figures() {
		if f == nil {
			continue
		}
		t.add(side, "KV cache, tokens", f.KVTokens, false)
		t.add(side, "longest sequence, tokens", int64(f.MaxModelLen), false)
		t.add(side, "sequences at once (maxNumSeqs)", int64(f.MaxNumSeqs), false)
		for _, l := range f.Lengths {
			lengths[l.Tokens] = true
		}
	}
	for _, n := range sorted(lengths) {
		for side, f := range c.figures() {
			if f == nil {
				continue
			}
			for _, l := range f.Lengths {
				if l.Tokens == n {
					t.add(side, "they fit of "+plan.Group(int64(n))+" tokens", int64(l.Sequences), false)
				}
			}
		}
	}
	return t.rows
}

// decisions returns the decisions that differ: name, before, after.
func (c *Change) decisions() [][3]string {
	both := c.figures()
	if both[0] == nil || both[1] == nil {
		return nil
	}
	was := map[string]string{}
	for _, d := range both[0].Decisions {
		was[d.Name] = d.Value
	}
	var out [][3]string
	for _, d := range both[1].Decisions {
		if was[d.Name] != d.Value {
			out = append(out, [3]string{d.Name, was[d.Name], d.Value})
		}
	}
	return out
}

// percent formats the change from old to new, rounded: −61 %, or to two digits below one: −0.13 %.
func percent(old, new int64) string {
	if old == 0 {
		return ""
	}
	p := (float64(new) - float64(old)) / float64(old) * 100
	sign := "+"
	if p < 0 {
		sign, p = "−", -p
	}
	switch {
	case p < 0.001:
		return " (" + sign + "less than 0.001 %)"
	case p < 0.95:
		return " (" + sign + strconv.FormatFloat(p, 'g', 2, 64) + " %)"
	}
	return " (" + sign + strconv.FormatFloat(p, 'f', 0, 64) + " %)"
}
