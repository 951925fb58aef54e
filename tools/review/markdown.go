package review

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"vapp.dev/appliance/plan"
)

// maxMarkdown bounds the text in bytes: GitHub refuses comments longer than 65,536 characters.
const maxMarkdown = 60_000

// Markdown writes the review as a comment for a pull request: the verdict, a table of all profiles,
// and a folded section for each. Sections that do not fit are left out, and the comment says how
// many.
func (r *Review) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### vapp plan: %s\n\n", r.Headline())
	fmt.Fprintf(&b, "%s → %s", code(r.Old), code(r.New))
	if c := r.Class(); c != "" {
		fmt.Fprintf(&b, " · **%s**: %s", c, meaning[c])
	}
	if r.Same > 0 {
		fmt.Fprintf(&b, " · %s unchanged", plan.Group(int64(r.Same)))
	}
	b.WriteString("\n")
	r.losses(&b)
	r.summary(&b)
	left := 0
	for i := range r.Changes {
		if r.Changes[i].Status == Removed {
			continue // the summary has everything
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

// losses writes the list of what gets worse, starting with profiles that cannot be planned.
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

// summary writes a table with one row for each profile.
func (r *Review) summary(b *strings.Builder) {
	const most = 100
	if len(r.Changes) == 0 {
		return
	}
	b.WriteString("\n| profile | change | reload | KV cache, tokens | sequences × longest | memory |\n|:--|:--|:--|--:|--:|--:|\n")
	for i := range r.Changes {
		if i == most {
			fmt.Fprintf(b, "| and %d more | | | | | |\n", len(r.Changes)-most)
			break
		}
		c := &r.Changes[i]
		both := c.figures()
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", cellCode(c.Path), c.Status, cmp.Or(string(c.Class), "–"),
			arrow(both, func(f *Figures) string { return plan.Group(f.KVTokens) }),
			arrow(both, func(f *Figures) string { return f.ofLongest() }),
			arrow(both, func(f *Figures) string { return plan.Size(f.Total) }))
	}
}

// ofLongest returns how many sequences of the longest length fit: 4 × 16,384.
func (f *Figures) ofLongest() string {
	longest := plan.Group(int64(f.MaxModelLen))
	if len(f.Lengths) == 0 {
		return longest
	}
	return plan.Group(int64(f.Lengths[len(f.Lengths)-1].Sequences)) + " × " + longest
}

// arrow returns a figure before and after, once where it is the same.
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
