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

// Sizes of the drawings, in SVG units. The page stretches them to its width; their texts are HTML, so
// that they keep their size on a phone.
const wide, curveHigh = 1000.0, 200.0

// block is a part of a bar as drawn.
type block struct {
	Segment
	X, W  string // position and width in the SVG
	Kind  string // CSS class of its colour
	Size  string
	Share string
}

// tick is a mark on an axis: a position in per cent, from the left or for counts also from the top,
// and a text.
type tick struct {
	X, Y, Text string
	Class      string // "first", "last" or "minor": left out where the page is narrow
}

// page is the data of the template page.html, which escapes every text.
type page struct {
	Plan     *plan.Plan
	Verdict  plan.Verdict
	Blocks   []block // of the whole device
	Scale    []tick
	Used     []block // of what the server takes, if it is a small part of the device
	UsedSize string
	Line     string // points of the curve
	Area     string
	Cap      string // height of maxNumSeqs in the curve, "" if it is outside
	Ticks    []tick
	Counts   []tick
	Total    string
	Text     string // the plan as text
	Sections []Section
}

// Section is a text at the end of the page, below its title.
type Section struct{ Title, Text string }

// enlarged is the share of the device below which the server's memory is drawn a second time,
// enlarged.
const enlarged = 0.4

// HTML writes p, and then the sections, as a self-contained page with inline SVG and style and without
// scripts. It is dark or light by the reader's system setting.
func HTML(w io.Writer, p *plan.Plan, sections ...Section) error {
	t, err := template.New("page").Funcs(template.FuncMap{"size": plan.Size, "group": group}).Parse(pageText)
	if err != nil {
		return err
	}
	pic := Of(p)
	used := p.Ledger.Total()
	d := page{Plan: p, Verdict: p.Verdict(), Total: plan.Size(pic.Total), UsedSize: plan.Size(used), Text: p.String(), Sections: sections}
	d.Blocks, d.Scale = blocks(pic.Segments, pic.Total), scale(pic.Total)
	if last := len(pic.Segments) - 1; float64(used) < enlarged*float64(pic.Total) {
		d.Used = blocks(pic.Segments[:last], used)
	}
	pic.line(p, &d)
	return t.Execute(w, d)
}

// group formats a number of the plan with commas.
func group(n any) string {
	switch n := n.(type) {
	case int:
		return plan.Group(int64(n))
	case int64:
		return plan.Group(n)
	}
	return fmt.Sprint(n)
}

// blocks returns the parts of a bar of that many bytes.
func blocks(segments []Segment, total int64) []block {
	var out []block
	x := 0.0
	for _, s := range segments {
		share := float64(s.Bytes) / float64(total)
		out = append(out, block{s, at(x), at(share * wide), kind(s.Name), plan.Size(s.Bytes), fmt.Sprintf("%.1f %%", 100*share)})
		x += share * wide
	}
	return out
}

// scale returns the marks below the bar of the device: at most six, in steps of a power of two.
func scale(total int64) []tick {
	unit, name := int64(1<<20), "MiB"
	if total >= 4<<30 {
		unit, name = 1<<30, "GiB"
	}
	step := unit
	for total/step > 5 {
		step *= 2
	}
	out := []tick{{X: "0", Text: "0", Class: "first"}}
	for n := step; float64(n) < 0.88*float64(total); n += step {
		out = append(out, tick{X: at(100 * float64(n) / float64(total)), Text: fmt.Sprintf("%d %s", n/unit, name)})
	}
	for i := range out { // on a phone every other one is left out, and those close to the last
		if i%2 == 1 || float64(int64(i)*step) > 0.7*float64(total) {
			out[i].Class = "minor"
		}
	}
	return append(out, tick{X: "100", Text: plan.Size(total), Class: "last"})
}

func at(x float64) string { return fmt.Sprintf("%.1f", x) }

// kind returns the CSS class of a part's colour: the first word of its name.
func kind(name string) string {
	first, _, _ := strings.Cut(strings.ToLower(name), " ")
	return strings.Trim(first, ",")
}

// line computes the curve of the page, with marks at powers of two.
func (p Picture) line(of *plan.Plan, d *page) {
	const top, bottom = 24.0, curveHigh // the counts are above the curve
	y := func(sequences int) float64 { return bottom - p.height(sequences)*(bottom-top) }
	var points []string
	for _, q := range p.Points {
		points = append(points, at(wide*p.share(q.Tokens))+","+at(y(q.Sequences)))
	}
	d.Line = strings.Join(points, " ")
	d.Area = fmt.Sprintf("%s %s,%s 0,%s", d.Line, at(wide), at(bottom), at(bottom))
	if p.Cap <= p.Points[0].Sequences {
		d.Cap = at(y(p.Cap))
	}
	ticks := p.ticks()
	for i, n := range ticks {
		t := tick{X: at(100 * p.share(n)), Text: length(n)}
		switch {
		case i == len(ticks)-1:
			t.Class = "last"
		case p.share(n) < 0.01:
			t.Class = "first"
		}
		if (len(ticks)-1-i)%2 == 1 {
			t.Class += " minor"
		}
		d.Ticks = append(d.Ticks, t)
		sequences := of.Account.Pool.Sequences(of.Capacity.Slabs, n)
		t.Y, t.Text = at(100*y(sequences)/bottom), plan.Group(int64(sequences))
		d.Counts = append(d.Counts, t)
	}
}
