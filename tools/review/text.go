package review

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"vapp.dev/appliance/plan"
)

// Text writes the review for a terminal; nothing where nothing changes.
func (r *Review) Text(w io.Writer) error {
	var b strings.Builder
	for i := range r.Changes {
		if i > 0 {
			b.WriteString("\n")
		}
		r.Changes[i].text(&b)
	}
	if len(r.Changes) > 1 || r.Same > 0 && len(r.Changes) > 0 {
		fmt.Fprintf(&b, "\n%s\n", r.Headline())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Headline returns one line: the changes and their most severe reload class.
func (r *Review) Headline() string {
	var parts []string
	for _, s := range []Status{Changed, Added, Removed, Broken} {
		if n := r.Count(s); n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", profiles(n), phrase(s, n)))
		}
	}
	if len(parts) == 0 {
		return "no profile changes"
	}
	return strings.Join(parts, ", ")
}

func profiles(n int) string {
	if n == 1 {
		return "1 profile"
	}
	return plan.Group(int64(n)) + " profiles"
}

func phrase(s Status, n int) string {
	one := n == 1
	switch {
	case s == Changed && one:
		return "changes"
	case s == Changed:
		return "change"
	case s == Added && one:
		return "is new"
	case s == Added:
		return "are new"
	case s == Removed && one:
		return "is removed"
	case s == Removed:
		return "are removed"
	}
	return "cannot be planned"
}

func (c *Change) text(b *strings.Builder) {
	fmt.Fprintf(b, "%s: %s\n", clean(c.Path), c.Status)
	c.errors(b)
	for _, f := range c.Fields {
		fmt.Fprintf(b, "  %s\n", clean(f.String()))
	}
	for _, d := range c.decisions() {
		fmt.Fprintf(b, "  %-30s %s → %s\n", clean(d[0]), cmp.Or(clean(d[1]), "none"), cmp.Or(clean(d[2]), "none"))
	}
	if c.New != nil && c.New.Figures != nil {
		for _, r := range append(c.capacity(), c.memory()...) {
			if r.moved() {
				r.text(b)
			}
		}
	}
	for _, s := range c.Worse {
		fmt.Fprintf(b, "  worse: %s\n", s)
	}
	for _, s := range c.Better {
		fmt.Fprintf(b, "  better: %s\n", s)
	}
	if c.Class != "" {
		fmt.Fprintf(b, "  to a running server this change is %s: %s\n", c.Class, meaning[c.Class])
	}
	if c.Transition != nil {
		for line := range strings.Lines(c.Transition.String()) { // names of models are foreign texts
			fmt.Fprintf(b, "%s\n", strings.TrimRight(clean(line), " "))
		}
	}
	if c.Refused != "" {
		fmt.Fprintf(b, "  a running server cannot make it: %s\n", clean(c.Refused))
	}
}

func (r row) text(b *strings.Builder) {
	unit := "     "
	if r.bytes {
		unit = "bytes"
	}
	fmt.Fprintf(b, "%s\n", strings.TrimRight(fmt.Sprintf("  %-30s %18s → %18s %s  %s", r.name, cell(r.old), cell(r.new), unit, r.change()), " "))
}

// errors writes the errors of sides that cannot be planned.
func (c *Change) errors(b *strings.Builder) {
	if c.Old != nil && c.Old.Err != "" && c.Status != Broken {
		fmt.Fprintf(b, "  could not be planned before:\n%s", indented(c.Old.Err))
	}
	if c.New != nil && c.New.Err != "" {
		fmt.Fprintf(b, "  cannot be planned:\n%s", indented(c.New.Err))
	}
}

func indented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		fmt.Fprintf(&b, "    %s\n", clean(strings.TrimRight(line, "\n")))
	}
	return b.String()
}

// clean replaces control characters in a file's name or text.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}
