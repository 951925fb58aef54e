package review

import (
	"cmp"
	"fmt"
	"html"
	"strings"

	"vapp.dev/schema"
)

// section writes the folded section of one profile.
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
	c.writeTransition(b)
	c.writeFigures(b)
	b.WriteString("\n</details>\n")
}

// writeTransition writes how a running server makes structural changes.
func (c *Change) writeTransition(b *strings.Builder) {
	if c.Refused != "" {
		fmt.Fprintf(b, "\nA running server cannot make it: %s\n", code(c.Refused))
	}
	t := c.Transition
	if t == nil {
		return
	}
	b.WriteString("\n")
	if t.Mode == schema.Report {
		b.WriteString("`reload.structural` is `\"report\"`: the change waits for a restart. `\"swap\"` would do this:\n\n")
	}
	fmt.Fprintf(b, "**%s**: %s\n\n- gap: %s\n- memory: %s\n", t.Way, code(t.Why), t.Gap, t.Footprint.String())
	if t.Host != nil {
		fmt.Fprintf(b, "- memory of the machine: %s\n", t.Host)
	}
	fmt.Fprintf(b, "- prefix cache: %s\n", t.PrefixCache)
}

// writeFigures writes the figures before and after, where they say more than the summary.
func (c *Change) writeFigures(b *strings.Builder) {
	both := c.figures()
	switch {
	case c.New == nil || c.New.Figures == nil:
		return
	case both[0] != nil && both[0].same(both[1]):
		b.WriteString("\nThe plan stays as it is.\n")
		return
	}
	if d := c.decisions(); len(d) > 0 {
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

// rows writes figures, changed ones in bold. For a new profile it writes the new figures only.
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

// clip shortens a long value.
func clip(s string) string {
	const most = 300
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// code returns a code span with a foreign text; no Markdown in the text takes effect.
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

// cellCode is code for a table cell, where "|" must be escaped inside a code span too.
func cellCode(s string) string {
	return strings.ReplaceAll(code(clip(s)), "|", `\|`)
}

// fenced returns a code block with a foreign text.
func fenced(s string) string {
	mark := strings.Repeat("`", max(3, longestRun(s)+1))
	return mark + "text\n" + strings.TrimLeft(indented(s), "\n") + mark + "\n"
}

// longestRun returns the length of the longest run of backticks.
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
