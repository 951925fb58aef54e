package picture

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

// Sizes of the drawings, in SVG units.
const (
	barWide, barHigh     = 960.0, 44.0
	curveWide, curveHigh = 960.0, 220.0
	margin               = 48.0
)

// block is a part of the bar as drawn.
type block struct {
	Segment
	X, W  string // position and width in the SVG
	Kind  string // CSS class of its colour
	Size  string
	Share string
}

// tick is a mark on an axis.
type tick struct{ X, Y, Text string }

// page is the data of the template page.html, which escapes every text.
type page struct {
	Plan   *plan.Plan
	Blocks []block
	Line   string // points of the curve
	Area   string
	Ticks  []tick
	Counts []tick
	Total  string
	Text   string // the plan as text
}

// HTML writes p as a self-contained page with inline SVG and style and without scripts. It is
// dark or light by the reader's system setting.
func HTML(w io.Writer, p *plan.Plan) error {
	t, err := template.New("page").Funcs(template.FuncMap{"size": plan.Size, "group": plan.Group}).Parse(pageText)
	if err != nil {
		return err
	}
	pic := Of(p)
	d := page{Plan: p, Total: plan.Size(pic.Total), Text: p.String()}
	x := 0.0
	for _, s := range pic.Segments {
		share := float64(s.Bytes) / float64(pic.Total)
		d.Blocks = append(d.Blocks, block{s, at(x), at(share * barWide), kind(s.Name), plan.Size(s.Bytes), fmt.Sprintf("%.1f %%", 100*share)})
		x += share * barWide
	}
	pic.line(&d)
	return t.Execute(w, d)
}

func at(x float64) string { return fmt.Sprintf("%.1f", x) }

// kind returns the CSS class of a part's colour: the first word of its name.
func kind(name string) string {
	first, _, _ := strings.Cut(strings.ToLower(name), " ")
	return strings.Trim(first, ",")
}

// line computes the curve of the page, with seven evenly spaced marks.
func (p Picture) line(d *page) {
	n := len(p.Points) - 1
	x := func(i int) float64 { return margin + float64(i)/float64(max(1, n))*(curveWide-2*margin) }
	y := func(q Point) float64 { return curveHigh - 28 - p.height(q.Sequences)*(curveHigh-48) }
	var points []string
	for i, q := range p.Points {
		points = append(points, at(x(i))+","+at(y(q)))
	}
	d.Line = strings.Join(points, " ")
	d.Area = fmt.Sprintf("%s %s,%s %s,%s", d.Line, at(x(n)), at(curveHigh-28), at(x(0)), at(curveHigh-28))
	for k := range 7 {
		i := k * n / 6
		q := p.Points[i]
		d.Ticks = append(d.Ticks, tick{at(x(i)), at(curveHigh - 8), plan.Group(int64(q.Tokens))})
		d.Counts = append(d.Counts, tick{at(x(i)), at(y(q) - 6), plan.Group(int64(q.Sequences))})
	}
}
