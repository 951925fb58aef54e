// Package picture draws a plan for a terminal and as an HTML page: a bar of the device's memory,
// and a curve of how many sequences of each length fit. It must not compute figures of its own:
// all are the plan's. Start reading at Of in picture.go.
package picture

import (
	"math"

	"vapp.dev/appliance/plan"
)

// Segment is a part of the bar.
type Segment struct {
	Name  string
	Bytes int64
	What  string // names of the ledger lines in it
}

// Point is one length of the curve.
type Point struct{ Tokens, Sequences int }

// Picture holds the figures that are drawn.
type Picture struct {
	Segments []Segment // the last one is free memory
	Total    int64     // bytes: the device's memory, or the ledger's total if that is unknown
	Points   []Point   // from the shortest to maxModelLen
	Cap      int       // maxNumSeqs
}

// parts are the parts of the bar, from the left, and the ledger lines in each.
var parts = []struct {
	name  string
	lines []string
}{
	{"weights", []string{"weights"}},
	{"KV cache", []string{"kv"}},
	{"scratch", []string{"scratch", "workspace", "step", "item", "encoded"}},
	{"adapters", []string{"lora"}},
	{"driver, graphs", []string{"context", "modules", "stacks", "graphs"}},
	{"process", []string{"text", "children", "runtime", "swap"}},
	{"reserve", []string{"reserve"}},
}

// samples is the number of points of the curve.
const samples = 96

// Of returns the figures of a plan.
func Of(p *plan.Plan) Picture {
	pic := Picture{Cap: p.Options.MaxNumSeqs}
	counted := map[string]int64{}
	for _, i := range p.Ledger {
		if i.Basis != plan.Host && i.Basis != plan.Apart {
			counted[i.Name] = i.Bytes
			for _, part := range i.Parts {
				if part.Name == "lora" {
					counted[i.Name], counted[part.Name] = i.Bytes-part.Bytes, part.Bytes
				}
			}
		}
	}
	for _, part := range parts {
		s := Segment{Name: part.name}
		for _, l := range part.lines {
			if n := counted[l]; n > 0 {
				s.Bytes += n
				if s.What != "" {
					s.What += ", "
				}
				s.What += l
			}
		}
		if s.Bytes > 0 {
			pic.Segments = append(pic.Segments, s)
		}
	}
	used := p.Ledger.Total()
	if pic.Total = used; p.Facts.TotalBytes > used {
		pic.Total = p.Facts.TotalBytes
		pic.Segments = append(pic.Segments, Segment{"free", pic.Total - used, "left to others"})
	}
	pic.Points = curve(p)
	return pic
}

// curve returns how many sequences fit at steady state, at lengths that are evenly spaced on a
// logarithmic scale.
func curve(p *plan.Plan) []Point {
	last := p.Options.MaxModelLen
	first := min(256, max(1, last/4))
	var out []Point
	for i := range samples {
		n := int(math.Round(float64(first) * math.Pow(float64(last)/float64(first), float64(i)/(samples-1))))
		if len(out) > 0 && n == out[len(out)-1].Tokens {
			continue
		}
		out = append(out, Point{n, p.Account.Pool.Sequences(p.Capacity.Slabs, n)})
	}
	return out
}

// share returns the position of a length on the axis, 0 to 1 on a logarithmic scale.
func (p Picture) share(tokens int) float64 {
	first, last := p.Points[0].Tokens, p.Points[len(p.Points)-1].Tokens
	if first == last {
		return 1
	}
	return math.Log(float64(tokens)/float64(first)) / math.Log(float64(last)/float64(first))
}

// ticks returns the lengths that are marked on the axis: the powers of two, and the longest length
// in place of a power that is close to it.
func (p Picture) ticks() []int {
	first, last := p.Points[0].Tokens, p.Points[len(p.Points)-1].Tokens
	var out []int
	for n := 1; n < last; n *= 2 {
		if n >= first && 3*last > 4*n {
			out = append(out, n)
		}
	}
	return append(out, last)
}

// length returns a length in tokens as profiles have it: 32K, or 34,272.
func length(tokens int) string {
	if tokens >= 1<<10 && tokens%(1<<10) == 0 {
		return plan.Group(int64(tokens>>10)) + "K"
	}
	return plan.Group(int64(tokens))
}

// at returns the point at a share of the curve's width, 0 to 1.
func (p Picture) at(share float64) Point {
	return p.Points[int(math.Round(share*float64(len(p.Points)-1)))]
}

// height returns the height of a count in the drawing, 0 to 1 on a logarithmic scale, where 1 is
// the largest count.
func (p Picture) height(sequences int) float64 {
	top := 0
	for _, q := range p.Points {
		top = max(top, q.Sequences)
	}
	if top == 0 {
		return 0
	}
	return math.Log1p(float64(sequences)) / math.Log1p(float64(top))
}

// columns divides n columns among the segments by bytes, at least one for each.
func (p Picture) columns(n int) []int {
	out := make([]int, len(p.Segments))
	left, widest := n, 0
	for i, s := range p.Segments {
		out[i] = max(1, int(math.Round(float64(s.Bytes)/float64(p.Total)*float64(n))))
		left -= out[i]
		if out[i] > out[widest] {
			widest = i
		}
	}
	if len(out) > 0 {
		out[widest] = max(1, out[widest]+left)
	}
	return out
}
