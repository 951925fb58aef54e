package review

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"strings"

	"vapp.dev/appliance/plan"
	"vapp.dev/schema"
)

// maxMarkdown bounds the text, in bytes: GitHub refuses a comment of more than
// 65,536 characters.
const maxMarkdown = 60_000

// Markdown prints the review as a comment of a pull request: the verdict, a
// table of all profiles, and a folded section for each. What would not fit into
// a comment is left out, and said to be.
func (r *Review) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### vapp plan: %s\n\n", r.Headline())
	fmt.Fprintf(&b, "%s → %s", code(r.Old), code(r.New))
	if c := r.Class(); c != "" {
		fmt.Fprintf(&b, " · **%s**: %s", c, meaning[c])
	}
	if r.Same > 0 {
		fmt.Fprintf(&b, " · %s the same", profiles(r.Same))
	}
	b.WriteString("\n")
	r.losses(&b)
	r.summary(&b)
	left := 0
	for i := range r.Changes {
		if r.Changes[i].Status == Removed {
			continue // the summary says it all
		}
		var s strings.Builder
		r.Changes[i].section(&s)
		if b.Len()+s.Len() > maxMarkdown {
			left++
			continue
		}
		b.WriteString(s.String())
	}
	if left > 0 {
		fmt.Fprintf(&b, "\n%s more, left out to keep this comment short: `vapp diff` prints them.\n", profiles(left))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// losses is the list of what gets worse, what cannot be planned first.
func (r *Review) losses(b *strings.Builder) {
	const most = 30
	var lines []string
	for _, c := range r.Changes {
		if c.Status == Broken {
			first, _, _ := strings.Cut(c.New.Err, "\n")
			lines = append(lines, fmt.Sprintf("- **%s cannot be planned**: %s", code(c.Path), code(clip(first))))
		}
	}
	for _, c := range r.Changes {
		if len(c.Worse) > 0 {
			lines = append(lines, fmt.Sprintf("- %s: %s", code(c.Path), strings.Join(c.Worse, "; ")))
		}
	}
	if len(lines) == 0 {
		return
	}
	b.WriteString("\n**What gets worse**\n\n")
	for i, l := range lines {
		if i == most {
			fmt.Fprintf(b, "- and in %s more\n", profiles(len(lines)-most))
			break
		}
		b.WriteString(l + "\n")
	}
}

// summary is one row for each profile.
func (r *Review) summary(b *strings.Builder) {
	const most = 100
	if len(r.Changes) == 0 {
		return
	}
	b.WriteString("\n| profile | change | reload | KV cache, tokens | longest sequence | sequences that long | memory |\n|:--|:--|:--|--:|--:|--:|--:|\n")
	for i := range r.Changes {
		if i == most {
			fmt.Fprintf(b, "| and %d more | | | | | | |\n", len(r.Changes)-most)
			break
		}
		c := &r.Changes[i]
		both := c.figures()
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s |\n", cellCode(c.Path), c.Status, cmp.Or(string(c.Class), "–"),
			arrow(both, func(f *Figures) string { return plan.Group(f.KVTokens) }),
			arrow(both, func(f *Figures) string { return plan.Group(int64(f.MaxModelLen)) }),
			arrow(both, func(f *Figures) string { return f.ofLongest() }),
			arrow(both, func(f *Figures) string { return plan.Size(f.Total) }))
	}
}

// ofLongest is how many sequences of the longest length fit.
func (f *Figures) ofLongest() string {
	if len(f.Lengths) == 0 {
		return "–"
	}
	return plan.Group(int64(f.Lengths[len(f.Lengths)-1].Sequences))
}

// arrow is a figure before and after, once where it stays.
func arrow(both [2]*Figures, of func(*Figures) string) string {
	switch {
	case both[0] == nil && both[1] == nil:
		return "–"
	case both[0] == nil:
		return of(both[1])
	case both[1] == nil:
		return of(both[0]) + " → –"
	}
	a, b := of(both[0]), of(both[1])
	if a == b {
		return a
	}
	return a + " → " + b
}

// section is the folded part of one profile.
func (c *Change) section(b *strings.Builder) {
	fmt.Fprintf(b, "\n<details>\n<summary><code>%s</code>: %s", html.EscapeString(clean(c.Path)), c.Status)
	if c.Class != "" {
		fmt.Fprintf(b, ", %s", c.Class)
	}
	b.WriteString("</summary>\n")
	if c.New != nil && c.New.Err != "" {
		fmt.Fprintf(b, "\nIt cannot be planned:\n\n%s", fenced(c.New.Err))
	}
	if c.Old != nil && c.Old.Err != "" {
		fmt.Fprintf(b, "\nBefore, it could not be planned:\n\n%s", fenced(c.Old.Err))
	}
	c.fields(b)
	c.figured(b)
	b.WriteString("\n</details>\n")
}

// figured is the plan before and after, where it says more than the summary.
func (c *Change) figured(b *strings.Builder) {
	both := c.figures()
	switch {
	case c.New == nil || c.New.Figures == nil:
		return
	case both[0] != nil && both[0].same(both[1]):
		b.WriteString("\nThe plan stays as it is.\n")
		return
	}
	if d := c.decided(); len(d) > 0 {
		b.WriteString("\n| decided | before | after |\n|:--|:--|:--|\n")
		for _, d := range d {
			fmt.Fprintf(b, "| %s | %s | %s |\n", clean(d[0]), cellCode(d[1]), cellCode(d[2]))
		}
	}
	rows(b, "capacity", c.capacity(), both[0] == nil)
	rows(b, "memory, bytes", c.memory(), both[0] == nil)
	if len(c.Better) > 0 {
		fmt.Fprintf(b, "\nBetter: %s\n", strings.Join(c.Better, "; "))
	}
	fmt.Fprintf(b, "\nPlanned for %s", code(both[1].Machine))
	if both[0] != nil && both[0].Machine != both[1].Machine {
		fmt.Fprintf(b, ", before for %s", code(both[0].Machine))
	}
	b.WriteString("\n")
}

func (c *Change) fields(b *strings.Builder) {
	if len(c.Fields) == 0 {
		return
	}
	b.WriteString("\n| field | before | after | reload |\n|:--|:--|:--|:--|\n")
	for _, f := range c.Fields {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", cellCode(f.Path), cellCode(f.Old), cellCode(f.New), cmp.Or(f.Class, schema.Structural))
	}
}

// rows prints figures, those that move in bold; of a new profile only its own.
func rows(b *strings.Builder, title string, list []row, fresh bool) {
	if fresh {
		fmt.Fprintf(b, "\n| %s | planned |\n|:--|--:|\n", title)
		for _, r := range list {
			fmt.Fprintf(b, "| %s | %s |\n", r.name, cell(r.new))
		}
		return
	}
	fmt.Fprintf(b, "\n| %s | before | after | change |\n|:--|--:|--:|--:|\n", title)
	for _, r := range list {
		bold := ""
		if r.old != nil && r.new != nil && r.moved() {
			bold = "**"
		}
		fmt.Fprintf(b, "| %s | %s | %s%s%s | %s |\n", r.name, cell(r.old), bold, cell(r.new), bold, r.change())
	}
}

// clip cuts a long value.
func clip(s string) string {
	const most = 300
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// code makes a code span of a text that is not ours: nothing in it is Markdown.
func code(s string) string {
	s = strings.TrimSpace(clean(s))
	if s == "" {
		return "–"
	}
	mark := strings.Repeat("`", longestRun(s)+1)
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return mark + s + mark
}

// cellCode is code in a table, where a bar ends the cell also inside a span.
func cellCode(s string) string {
	return strings.ReplaceAll(code(clip(s)), "|", `\|`)
}

// fenced is a block of text that is not ours.
func fenced(s string) string {
	mark := strings.Repeat("`", max(3, longestRun(s)+1))
	return mark + "text\n" + strings.TrimLeft(indented(s), "\n") + mark + "\n"
}

// longestRun is the length of the longest run of backticks.
func longestRun(s string) int {
	most, n := 0, 0
	for _, r := range s {
		if r != '`' {
			n = 0
			continue
		}
		n++
		most = max(most, n)
	}
	return most
}
