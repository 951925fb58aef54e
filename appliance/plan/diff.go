package plan

import (
	"fmt"
	"strings"
)

// Difference is the difference of two plans.
type Difference struct {
	Items    []Move `json:"items"`    // ledger lines, bytes
	Capacity []Move `json:"capacity"` // tokens and sequences
	Options  []Move `json:"options"`
}

// Move is one value before and after: Old and New, or OldWords and NewWords if it is not a number.
type Move struct {
	Name     string `json:"name"`
	Old      int64  `json:"old"`
	New      int64  `json:"new"`
	OldWords string `json:"old_words,omitempty"`
	NewWords string `json:"new_words,omitempty"`
}

// Diff compares two plans by item.
func Diff(old, new *Plan) *Difference {
	d := &Difference{}
	for _, name := range itemNames(old.Ledger, new.Ledger) {
		addMove(&d.Items, name, old.Ledger.Bytes(name), new.Ledger.Bytes(name))
	}
	addMove(&d.Items, "total", old.Ledger.Total(), new.Ledger.Total())
	addMove(&d.Capacity, "KV cache tokens", old.Capacity.Tokens, new.Capacity.Tokens)
	addMove(&d.Capacity, "longest sequence, tokens", int64(old.Options.MaxModelLen), int64(new.Options.MaxModelLen))
	for _, n := range []int{1 << 10, 8 << 10, 32 << 10} {
		if n <= min(old.Options.MaxModelLen, new.Options.MaxModelLen) {
			addMove(&d.Capacity, fmt.Sprintf("sequences of %s tokens", Group(int64(n))), old.sequences(n), new.sequences(n))
		}
	}
	o, n := old.Options, new.Options
	addMove(&d.Options, "maxNumSeqs", int64(o.MaxNumSeqs), int64(n.MaxNumSeqs))
	addMove(&d.Options, "maxNumBatchedTokens", int64(o.MaxNumBatchedTokens), int64(n.MaxNumBatchedTokens))
	addMove(&d.Options, "blockSize", int64(o.BlockSize), int64(n.BlockSize))
	addMove(&d.Options, "devices", int64(old.Ranks), int64(new.Ranks))
	addMove(&d.Options, "pipeline stages", old.stages(), new.stages())
	addMove(&d.Options, "drafted tokens", int64(o.Drafts), int64(n.Drafts))
	addWords(&d.Options, "model", old.Model.Source, new.Model.Source)
	addWords(&d.Options, "backend", old.Backend, new.Backend)
	was := map[string]string{}
	for _, c := range old.Choices {
		was[c.Name] = c.Value
	}
	for _, c := range new.Choices {
		if c.Name != modelLenChoice {
			addWords(&d.Options, c.Name, was[c.Name], c.Value)
		}
	}
	for _, f := range []struct {
		name     string
		old, new bool
	}{
		{"prefixCaching", o.PrefixCaching, n.PrefixCaching},
		{"chunkedPrefill", o.ChunkedPrefill, n.ChunkedPrefill},
		{"overlap", o.Overlap, n.Overlap},
	} {
		addWords(&d.Options, f.name, fmt.Sprint(f.old), fmt.Sprint(f.new))
	}
	addWords(&d.Options, "itlTarget", o.ITLTarget.String(), n.ITLTarget.String())
	addWords(&d.Options, "policy", o.Policy.String(), n.Policy.String())
	return d
}

// stages returns the number of pipeline stages.
func (p *Plan) stages() int64 { return int64(max(1, len(p.resolved.stageOf))) }

// sequences returns how many sequences of that length the plan's arena holds.
func (p *Plan) sequences(tokens int) int64 {
	return int64(p.Account.Pool.Sequences(p.Capacity.Slabs, tokens))
}

func itemNames(ls ...Ledger) []string {
	var out []string
	seen := map[string]bool{}
	for _, l := range ls {
		for _, i := range l {
			if !seen[i.Name] {
				seen[i.Name] = true
				out = append(out, i.Name)
			}
		}
	}
	return out
}

func addMove(to *[]Move, name string, old, new int64) {
	if old != new {
		*to = append(*to, Move{Name: name, Old: old, New: new})
	}
}

func addWords(to *[]Move, name, old, new string) {
	if old != new {
		*to = append(*to, Move{Name: name, OldWords: old, NewWords: new})
	}
}

// Same reports whether the plans are equal.
func (d *Difference) Same() bool {
	return len(d.Items) == 0 && len(d.Capacity) == 0 && len(d.Options) == 0
}

// String returns a line for each change: options, then capacities, then bytes.
func (d *Difference) String() string {
	if d.Same() {
		return "the plans are the same\n"
	}
	var b strings.Builder
	for _, m := range d.Options {
		if m.OldWords != "" || m.NewWords != "" {
			fmt.Fprintf(&b, "  %-26s %s → %s\n", m.Name, orNone(m.OldWords), orNone(m.NewWords))
			continue
		}
		m.write(&b)
	}
	for _, m := range d.Capacity {
		m.write(&b)
	}
	for _, m := range d.Items {
		fmt.Fprintf(&b, "  %-26s %18s → %18s bytes  %s%s\n", m.Name, Group(m.Old), Group(m.New), sign(m.New-m.Old), Size(abs(m.New-m.Old)))
	}
	return b.String()
}

func (m Move) write(b *strings.Builder) {
	fmt.Fprintf(b, "  %-26s %18s → %18s        %s%s\n", m.Name, Group(m.Old), Group(m.New), sign(m.New-m.Old), Group(abs(m.New-m.Old)))
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func sign(n int64) string {
	if n < 0 {
		return "−"
	}
	return "+"
}

func abs(n int64) int64 { return max(n, -n) }
