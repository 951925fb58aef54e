package review

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"vapp.dev/appliance/plan"
)

//go:embed page.html
var pageText string

// page is the data of the template page.html, which escapes every text.
type page struct {
	*Review
	Changes []pageChange
}

type pageChange struct {
	*Change
	Meaning string
	Bars    []bar
	Text    string
}

// bar is the memory of both engines at once, drawn.
type bar struct {
	Name, Text string
	Parts      []barPart
}

// barPart is a part of a bar: its position and width in the SVG, of 1000 units.
type barPart struct {
	X, W             string
	Kind, Name, Size string
}

var pageTemplate = template.Must(template.New("diff").Parse(pageText))

// HTML writes the review as one self-contained page. It draws the memory of both engines where a running server would
// replace its engine.
func (r *Review) HTML(w io.Writer) error {
	p := page{Review: r}
	for i := range r.Changes {
		c := &r.Changes[i]
		var text strings.Builder
		c.text(&text)
		out := pageChange{Change: c, Text: text.String()}
		if c.Class != "" {
			out.Meaning = fmt.Sprintf("%s: %s", c.Class, meaning[c.Class])
		}
		if t := c.Transition; t != nil {
			out.Bars = append(out.Bars, barOf("memory", &t.Footprint))
			if t.Host != nil {
				out.Bars = append(out.Bars, barOf("memory of the machine", t.Host))
			}
		}
		p.Changes = append(p.Changes, out)
	}
	return pageTemplate.Execute(w, p)
}

// barOf draws a memory: the old engine's part, what both share, the new one's, and what is free or missing.
func barOf(name string, r *plan.Footprint) bar {
	b := bar{Name: name, Text: r.String()}
	whole := float64(max(r.Peak, r.Limit, 1))
	at := 0.0
	part := func(kind, name string, n int64) {
		if n <= 0 {
			return
		}
		width := 1000 * float64(n) / whole
		b.Parts = append(b.Parts, barPart{fmt.Sprintf("%.1f", at), fmt.Sprintf("%.1f", width), kind, name, plan.Size(n)})
		at += width
	}
	missing := int64(0)
	if r.Limit > 0 {
		missing = max(0, r.Peak-r.Limit)
	}
	old := min(r.Old-r.Shared, r.Peak)
	part("old", "old alone", old)
	part("shared", "shared", r.Shared)
	part("new", "new, and memory.reserve", r.Peak-old-r.Shared-missing)
	part("over", "missing", missing)
	part("free", "free", r.Limit-r.Peak)
	return b
}
