package plan

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/kv"
)

// TextWidth is the width of Text in columns.
const TextWidth = 100

// narrowest is the least width of a text.
const narrowest = 60

// Form is how a plan is written as text. The zero Form is the short text of TextWidth columns.
type Form struct {
	Width   int    // columns, at most TextWidth; 0: TextWidth
	Verbose bool   // with the ledger and the decisions
	Picture string // the memory drawn, behind the verdict; "": a line of the memory in its place
}

// Text writes the plan's short text: the verdict, the model, the machine and what fits.
func (p *Plan) Text(w io.Writer) error { return p.TextAs(w, Form{}) }

// TextAs writes the plan as text. It begins with the verdict.
func (p *Plan) TextAs(w io.Writer, f Form) error {
	t := &text{width: TextWidth}
	if f.Width > 0 {
		t.width = min(TextWidth, max(narrowest, f.Width))
	}
	v := p.Verdict()
	t.line("vapp plan: %s", p.Profile)
	t.line("")
	v.write(t, p.Facts.TotalBytes > 0)
	t.line("")
	if f.Picture != "" {
		t.b.WriteString(f.Picture + "\n")
	}
	p.head(t, f.Verbose)
	if f.Picture == "" && !f.Verbose {
		p.parts(t)
	}
	p.fits(t, f.Verbose)
	if err := p.writeRanks(t, f.Verbose); err != nil {
		return err
	}
	if f.Verbose {
		t.line("")
		p.writeLedger(t)
		p.writeDecisions(t)
	}
	p.notes(t, v, f.Verbose)
	if p.Speed != nil {
		p.Speed.write(t)
	}
	_, err := io.WriteString(w, t.b.String())
	return err
}

// String returns the verbose text.
func (p *Plan) String() string {
	var b strings.Builder
	_ = p.TextAs(&b, Form{Verbose: true}) // a Builder returns no error
	return b.String()
}

// writeLedger writes the ledger with its sum and a legend.
func (p *Plan) writeLedger(t *text) {
	t.line("%s", p.memoryTitle())
	p.Ledger.table(t, Basis.counts)
	p.sum(t)
	p.elsewhere(t)
	t.hang("  ", legend)
}

// notes writes the notes below the plan. The short text leaves out what the verdict says.
func (p *Plan) notes(t *text, v Verdict, verbose bool) {
	for _, c := range p.Converted {
		t.note("converted", c)
	}
	for _, c := range p.Warnings {
		if verbose || !strings.Contains(v.Note, c) {
			t.note("warning", c)
		}
	}
	if len(p.PlanOnly) > 1 || len(p.PlanOnly) > 0 && verbose {
		t.note("plan-only", strings.Join(p.PlanOnly, "; "))
	}
}

// parts prints the largest lines of the ledger in one line.
func (p *Plan) parts(t *text) {
	var out []string
	var rest int64
	for _, i := range p.Ledger {
		switch {
		case !i.Basis.counts() || i.Bytes == 0:
		case i.Name == backend.Weights.String() || i.Name == backend.KV.String() || i.Name == reserveItem:
			out = append(out, strings.Replace(i.Name, "kv", "KV cache", 1)+" "+Size(i.Bytes))
		default:
			rest = add(rest, i.Bytes)
		}
	}
	s := strings.Join(append(out, "everything else "+Size(rest)), " · ")
	if p.Ranks > 1 {
		s = fmt.Sprintf("of rank %d: ", p.Tightest) + s
	}
	t.pair("memory", s)
}

func (p *Plan) head(t *text, verbose bool) {
	m, f := p.Model, p.Facts
	if p.InMemory {
		t.pair("profile", "made in memory; --print-profile prints it")
	}
	if len(p.Overridden) > 0 {
		t.pair("overridden", "by "+strings.Join(p.Overridden, ", "))
	}
	t.pair("model", fmt.Sprintf("%s · %s · %s parameters · %s", m.Source, m.Architecture, short(m.Weights), m.Dtype))
	if verbose {
		t.pair("", fmt.Sprintf("%d layers, hidden %s, heads %d/%d × %d, vocabulary %s, up to %s tokens",
			m.Layers, Group(int64(m.Hidden)), m.Heads, m.KVHeads, m.HeadDim, Group(int64(m.Vocab)), Group(int64(m.Longest))))
	}
	t.pair("", "from "+whereFrom[string(m.Where)])
	units := numberOf(f.Cores, "core")
	if f.SMs > 0 {
		units = numberOf(f.SMs, "SM")
	}
	machine := fmt.Sprintf("%s · %s · %s", p.Backend, f.Device, units)
	if f.TotalBytes > 0 {
		machine += " · " + Size(f.TotalBytes)
		if f.MemoryLimit == "cgroup" {
			machine += " (limit of the control group)"
		}
	}
	t.pair("machine", machine)
	switch {
	case f.Measured:
		t.pair("", "measured here"+freeNow(f.FreeBytes))
	case f.MemoryLimit == "flag":
		t.pair("", "memory as given by --memory, not measured")
	default:
		t.pair("", "from the catalogue, not measured")
	}
	if p.Ranks > 1 {
		t.pair("", fmt.Sprintf("%s, %s; what follows is of rank %d, the tightest", numberOf(p.Ranks, "rank"), p.onWhat(), p.Tightest))
	}
}

var whereFrom = map[string]string{
	"checkpoint": "the checkpoint: config and tensor headers",
	"config":     "the config alone; its weights are absent",
	"catalogue":  "the embedded catalogue; its weights are absent",
}

func freeNow(n int64) string {
	if n <= 0 {
		return ""
	}
	return ", " + Size(n) + " available now"
}

// fits prints the capacity of the KV arena.
func (p *Plan) fits(t *text, verbose bool) {
	c := p.Capacity
	t.line("")
	t.line("what fits")
	t.pair("KV cache", fmt.Sprintf("%s tokens in %s: %s, %s a token", Group(c.Tokens), Size(p.Ledger.Bytes("kv")), c.Classes[0].Format, Size(c.BytesPerToken)))
	if p.hybrid() && verbose {
		t.pair("", fmt.Sprintf("that is concurrency × length; pages of class %s alone: %s tokens, no capacity", c.Classes[0].Name, Group(c.GrowingTokens)))
	}
	concurrency := fmt.Sprintf("%.2fx at %s tokens a sequence", c.Concurrency, Group(int64(p.Options.MaxModelLen)))
	if verbose {
		concurrency += fmt.Sprintf(", steady (exact pools: %.2fx, %.2f %% lost to pages and slabs)", c.Ideal, 100*c.Lengths[len(c.Lengths)-1].Loss())
	}
	t.pair("concurrency", concurrency)
	rows := make([][]string, 5)
	for _, l := range c.Lengths {
		for i, s := range []string{Group(int64(l.Tokens)), Group(int64(l.Sequences)), Group(int64(l.Admitted)), Group(int64(l.Running)), fmt.Sprintf("%.1f", l.Ideal)} {
			rows[i] = append(rows[i], s)
		}
	}
	names := []string{"of length", "steady", "admitted", "and run", "exact pools"}
	if !verbose {
		names, rows = []string{names[0], names[1], "run at once"}, [][]string{rows[0], rows[1], rows[3]}
	}
	t.columns(names, rows...)
	if !verbose {
		t.pair("", fmt.Sprintf("steady: the KV cache holds so many · run at once: at most maxNumSeqs, %s", Group(int64(p.Options.MaxNumSeqs))))
		return
	}
	t.pair("", fmt.Sprintf("steady: held once prompts are computed · admitted: begun by the scheduler, which keeps a block beyond each · and run: at most maxNumSeqs, %d", p.Options.MaxNumSeqs))
	for i, cl := range c.Classes {
		name := ""
		if i == 0 {
			name = "KV classes"
		}
		t.pair(name, cl.String())
	}
}

// String returns a line about the class: layers, bytes of a token, pages, slabs.
func (c Class) String() string {
	s := fmt.Sprintf("%s: %s × ", c.Name, numberOf(c.Layers, "layer"))
	if c.Kind == kv.Snapshot.String() {
		return s + fmt.Sprintf("%s of state behind a prefix, every %s tokens, at most %s; evicted for sequences", Size(c.StateBytes/int64(c.Layers)), Group(int64(c.CheckpointEvery)), Group(int64(c.Checkpoints)))
	}
	if c.Kind == kv.State.String() {
		return s + fmt.Sprintf("%s of state a sequence, %d a slab", Size(c.StateBytes/int64(c.Layers)), c.PagesPerSlab)
	}
	s += fmt.Sprintf("%s a token, pages of %d tokens %s, %d a slab", Size(c.BytesPerToken/int64(c.Layers)), c.BlockSize, Size(c.PageBytes), c.PagesPerSlab)
	switch {
	case c.Kind == kv.Chunk.String():
		s += fmt.Sprintf(", those of the last chunk of %s", Group(int64(c.Window)))
	case c.Window > 0:
		s += fmt.Sprintf(", the last %s tokens", Group(int64(c.Window)))
	}
	return s
}

func (p *Plan) hybrid() bool { return hybrid(p.Account.Pool) }

// columns prints rows of cells in right-aligned columns.
func (t *text) columns(names []string, rows ...[]string) {
	for i, name := range names {
		var b strings.Builder
		for k := range rows[0] {
			wide := 0
			for _, r := range rows {
				wide = max(wide, len(r[k]))
			}
			fmt.Fprintf(&b, "%*s  ", wide, rows[i][k])
		}
		t.pair(name, strings.TrimRight(b.String(), " "))
	}
}

// onWhat returns where the ranks run.
func (p *Plan) onWhat() string {
	if n := hostRanks(p.resolved.in); n > 1 {
		return fmt.Sprintf("%d on each machine, with a part of it as above (cpu.ranks)", n)
	}
	return "each on a device like it"
}

// grid prints columns of cells, the numbers right-aligned.
func (t *text) grid(columns [][]string) {
	for row := range columns[0] {
		line := " "
		for _, c := range columns {
			wide := 0
			for _, s := range c {
				wide = max(wide, utf8.RuneCountInString(s))
			}
			line += strings.Repeat(" ", wide-utf8.RuneCountInString(c[row])+1) + " " + c[row]
		}
		t.line("%s", strings.TrimRight(line, " "))
	}
}

// memoryTitle returns the title of the ledger.
func (p *Plan) memoryTitle() string {
	if p.Ranks > 1 {
		return fmt.Sprintf("memory of rank %d of %d, in bytes", p.Tightest, p.Ranks)
	}
	return "memory, in bytes"
}

// elsewhere prints the lines that do not count against the budget.
func (p *Plan) elsewhere(t *text) {
	p.Ledger.table(t, func(b Basis) bool { return b == Apart })
	if p.Ledger.HostTotal() == 0 {
		return
	}
	t.line("memory of the host, in bytes")
	p.Ledger.table(t, func(b Basis) bool { return b == Host })
}

// sum prints the total, the budget and what is left.
func (p *Plan) sum(t *text) {
	total := p.Ledger.Total()
	t.row("total", Group(total), Size(total), "", "")
	if n := p.Budget.Bytes; n > 0 {
		t.row("budget", Group(n), Size(n), "", p.Budget.Rule)
		t.row("left over", Group(n-total), Size(n-total), "", "")
	} else {
		t.row("budget", "", "", "", p.Budget.Rule)
	}
}

// legend explains the bases.
const legend = "exact: derived to the byte · bound: ceiling · fitted: estimate, error beside it · held: kept free · host, apart: not counted"

func (p *Plan) writeDecisions(t *text) {
	t.line("")
	t.line("decided")
	for _, c := range p.Choices {
		text := c.Value
		if c.Why != "" {
			text += "  (" + c.Why + ")"
		}
		t.wide(16, c.Name, text)
	}
	width, format := 0, 0
	for _, k := range p.Kernels {
		width, format = max(width, len(k.Name)), max(format, len(k.Format))
	}
	for i, k := range p.Kernels {
		name := ""
		if i == 0 {
			name = "kernels"
		}
		t.wide(16, name, fmt.Sprintf("%-*s  %-*s  %s, %s", format, k.Format, width, k.Name, numberOf(k.Count, "weight"), Size(k.Bytes)))
	}
	p.writeFavored(t)
	t.wide(16, "go memory limit", Size(p.GoMemoryLimit))
	p.byShape(t)
}

// table prints the lines whose basis of selects, each with its parts below it.
func (l Ledger) table(t *text, of func(Basis) bool) {
	for _, i := range l {
		if !of(i.Basis) {
			continue
		}
		t.row(i.Name, Group(i.Bytes), Size(i.Bytes), string(i.Basis), i.Rule)
		for _, p := range i.Parts {
			t.row("  "+p.Name, Group(p.Bytes), Size(p.Bytes), "", p.Rule)
		}
	}
}

// text builds a text whose lines are at most width wide, except for words that are longer.
type text struct {
	b     strings.Builder
	width int
}

func (t *text) line(format string, args ...any) {
	fmt.Fprintf(&t.b, strings.TrimRight(format, " ")+"\n", args...)
}

func (t *text) pair(name, value string) { t.wide(12, name, value) }

// wide prints a name in a column and the wrapped value in the next one.
func (t *text) wide(column int, name, value string) {
	t.hang(fmt.Sprintf("  %-*s ", column, name), value)
}

func (t *text) note(kind, value string) {
	t.line("")
	t.hang(kind+": ", value)
}

// row prints a line of the ledger. A name that is longer than its column narrows the next one.
func (t *text) row(name, bytes, size, basis, rule string) {
	width := 29 - max(13, utf8.RuneCountInString(name))
	t.hang(fmt.Sprintf("  %-13s %*s %11s  %-6s  ", name, width-1, bytes, size, basis), rule)
}

// wrapped prints lead and value as one text. Further lines are in the column of pair's values.
func (t *text) wrapped(lead, value string) {
	lines := wrap(lead+value, t.width)
	t.line("%s", lines[0])
	if len(lines) > 1 {
		t.pair("", strings.Join(lines[1:], " "))
	}
}

// hang prints lead and value. Further lines of value are aligned with its first.
func (t *text) hang(lead, value string) {
	at := utf8.RuneCountInString(lead)
	for _, line := range wrap(value, t.width-at) {
		t.b.WriteString(strings.TrimRight(lead+line, " ") + "\n")
		lead = strings.Repeat(" ", at)
	}
}

// wrap breaks a text into lines at spaces; runs of spaces within a line are kept. A word that is
// wider than a line, such as a path, gets its own line.
func wrap(s string, width int) []string {
	var out []string
	for utf8.RuneCountInString(s) > width {
		cut, n := -1, 0
		for i, r := range s {
			if n++; n > width+1 {
				break
			}
			if r == ' ' {
				cut = i
			}
		}
		if cut <= 0 {
			if cut = strings.IndexByte(s, ' '); cut <= 0 {
				break
			}
		}
		out = append(out, s[:cut])
		s = strings.TrimLeft(s[cut:], " ")
	}
	return append(out, s)
}

// short formats a count with a unit: 1.24 B.
func short(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f B", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.0f M", float64(n)/1e6)
	}
	return Group(n)
}
