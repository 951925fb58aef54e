package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// HTML returns a self-contained page with the charts and the table of a sweep: throughput and
// latencies over concurrency, and throughput over latency.
func (s Sweep) HTML() string {
	if len(s) == 0 {
		return ""
	}
	var b strings.Builder
	first := &s[0]
	title := "Latency over concurrency: " + first.Model
	fmt.Fprintf(&b, pageHead, html.EscapeString(title), html.EscapeString(title), html.EscapeString(s.subtitle()))
	for _, c := range s.charts() {
		c.write(&b)
	}
	b.WriteString("</main>\n<div><table>\n")
	for i := -1; i < len(s); i++ {
		b.WriteString("<tr>")
		for _, c := range columns {
			if i < 0 {
				b.WriteString("<th>" + html.EscapeString(c.name) + "</th>")
			} else {
				b.WriteString("<td>" + html.EscapeString(c.of(&s[i])) + "</td>")
			}
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</table></div>\n</body></html>\n")
	return b.String()
}

func (s Sweep) subtitle() string { return s[0].subtitle(" for each concurrency") }

// subtitle describes the requests of a run; which is inserted after their number.
func (r *Result) subtitle(which string) string {
	in, out := 0, 0
	if r.Completed > 0 {
		in, out = r.Input/r.Completed, r.Output/r.Completed
	}
	text := fmt.Sprintf("%s, %d requests%s, about %d tokens in and %d out", r.Backend, r.NumPrompts, which, in, out)
	if r.Label != "" {
		text = r.Label + ": " + text
	}
	return text + ", " + day(r.Date)
}

// day formats a result's date, YYYYMMDD-HHMMSS, for readers.
func day(date string) string {
	if len(date) != len("20060102-150405") || date[8] != '-' {
		return date
	}
	return date[:4] + "-" + date[4:6] + "-" + date[6:8] + " " + date[9:11] + ":" + date[11:13]
}

func (s Sweep) charts() []chart {
	over := func(name string, of func(r *Result) float64) line {
		l := line{name: name}
		for i := range s {
			l.points = append(l.points, point{float64(s[i].MaxConcurrency), of(&s[i]), fmt.Sprintf("concurrency %d", s[i].MaxConcurrency)})
		}
		return l
	}
	at := func(metric string, p float64) func(r *Result) float64 {
		return func(r *Result) float64 { return r.Percentile(metric, p) }
	}
	front := line{name: "output"}
	for i := range s {
		front.points = append(front.points, point{s[i].Percentile(E2EL, 50), s[i].OutputThroughput(), fmt.Sprint(s[i].MaxConcurrency)})
	}
	return []chart{
		{title: "Throughput", x: "concurrent requests", y: "output tokens/s", ordinal: true, lines: []line{over("output", (*Result).OutputThroughput)}},
		{title: "Throughput over latency", x: "median end-to-end latency, ms; beside each point its concurrency", y: "output tokens/s", lines: []line{front}, named: true},
		{title: "Time to first token", x: "concurrent requests", y: "ms", ordinal: true, lines: []line{over("p50", at(TTFT, 50)), over("p99", at(TTFT, 99))}},
		{title: "Inter-token latency", x: "concurrent requests", y: "ms", ordinal: true, lines: []line{over("p50", at(ITL, 50)), over("p99", at(ITL, 99))}},
	}
}

// point is a point of a line, with its name.
type point struct {
	x, y float64
	name string
}

type line struct {
	name   string
	points []point
}

// chart is an SVG chart whose axes start at zero.
type chart struct {
	title, x, y string
	lines       []line
	// ordinal places the x values at equal distances.
	ordinal bool
	// named writes each point's name next to it.
	named bool
}

// Size of a chart and of its plot area, in pixels.
const (
	chartWide, chartHigh = 480, 300
	plotLeft, plotRight  = 64, 440
	plotTop, plotBottom  = 36, 248
)

func (c chart) write(b *strings.Builder) {
	fmt.Fprintf(b, "<figure><figcaption>%s</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n",
		html.EscapeString(c.title), chartWide, chartHigh, html.EscapeString(c.title))
	topX, topY := c.tops()
	c.axes(b, topX, topY)
	for i, l := range c.lines {
		var path strings.Builder
		for k, p := range l.points {
			fmt.Fprintf(&path, "%.1f,%.1f ", c.across(k, p, topX), up(p.y, topY))
		}
		fmt.Fprintf(b, "<polyline class=\"s%d\" points=\"%s\"/>\n", i, strings.TrimSpace(path.String()))
		for k, p := range l.points {
			x, y := c.across(k, p, topX), up(p.y, topY)
			fmt.Fprintf(b, "<circle class=\"s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"><title>%s, %s: %s</title></circle>\n", i, x, y,
				html.EscapeString(l.name), html.EscapeString(p.name), two(p.y))
		}
		if c.named {
			c.names(b, l, topX, topY)
		}
		if len(c.lines) > 1 { // above the plot area
			fmt.Fprintf(b, "<text class=\"key s%d\" x=\"%d\" y=\"%d\">● %s</text>\n", i, plotRight-60*(len(c.lines)-1-i), plotTop-16, html.EscapeString(l.name))
		}
	}
	b.WriteString("</svg></figure>\n")
}

// names writes the names of points: on the right, or on the left where the right has no space. A
// name that would overlap the previous one is in the tooltip only.
func (c chart) names(b *strings.Builder, l line, topX, topY float64) {
	const away, high, wide = 9, 13, 34
	lastX, lastY := math.Inf(-1), math.Inf(-1)
	for k, p := range l.points {
		x, y := c.across(k, p, topX), up(p.y, topY)
		if math.Abs(x-lastX) < wide && math.Abs(y-lastY) < high {
			continue
		}
		lastX, lastY = x, y
		anchor, at := "start", x+away
		if at+wide > chartWide {
			anchor, at = "end", x-away
		}
		fmt.Fprintf(b, "<text class=\"near\" text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", anchor, at, y+4, html.EscapeString(p.name))
	}
}

// axes draws grid lines at round values, and the labels.
func (c chart) axes(b *strings.Builder, topX, topY float64) {
	for y := 0.0; y <= topY*1.0001; y += step(topY) {
		fmt.Fprintf(b, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"y\" x=\"%d\" y=\"%.1f\">%s</text>\n",
			plotLeft, plotRight, up(y, topY), up(y, topY), plotLeft-8, up(y, topY)+4, short(y))
	}
	label := func(x float64, text string) {
		fmt.Fprintf(b, "<text class=\"x\" x=\"%.1f\" y=\"%d\">%s</text>\n", x, plotBottom+18, text)
	}
	if c.ordinal {
		for k, p := range c.lines[0].points {
			label(c.across(k, p, topX), short(p.x))
		}
	} else {
		for x := 0.0; x <= topX*1.0001; x += step(topX) {
			label(c.across(0, point{x: x}, topX), short(x))
		}
	}
	fmt.Fprintf(b, "<text class=\"x\" x=\"%d\" y=\"%d\">%s</text><text class=\"unit\" x=\"%d\" y=\"%d\">%s</text>\n",
		(plotLeft+plotRight)/2, plotBottom+42, html.EscapeString(c.x), plotLeft-52, plotTop-16, html.EscapeString(c.y))
}

// tops returns the ends of the axes: the smallest round values that include all points.
func (c chart) tops() (x, y float64) {
	for _, l := range c.lines {
		for _, p := range l.points {
			x, y = max(x, p.x), max(y, p.y)
		}
	}
	end := func(v float64) float64 {
		if !(v > 0) {
			return 1
		}
		return math.Ceil(v/step(v)) * step(v)
	}
	return end(x), end(y)
}

// step returns a round distance that gives about five grid lines.
func step(top float64) float64 {
	if !(top > 0) || math.IsInf(top, 0) {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(top/5)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if top/(unit*m) <= 6 {
			return unit * m
		}
	}
	return unit * 10
}

func (c chart) across(k int, p point, top float64) float64 {
	if n := len(c.lines[0].points); c.ordinal {
		return plotLeft + (float64(k)+0.5)/float64(n)*(plotRight-plotLeft)
	}
	return plotLeft + p.x/top*(plotRight-plotLeft)
}

func up(y, top float64) float64 { return plotBottom - y/top*(plotBottom-plotTop) }

// short formats an axis value: 1500 is 1.5k.
func short(x float64) string {
	if x >= 1000 {
		return fmt.Sprintf("%.4gk", x/1000)
	}
	return fmt.Sprintf("%.4g", x)
}

// pageHead is a format string; its arguments are the title, the title again and the subtitle.
const pageHead = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>%s</title>
<style>
:root { color-scheme: light dark; --back: #ffffff; --ink: #1c2330; --soft: #6b7482; --grid: #e3e7ec; --s0: #2563b8; --s1: #c8541b; }
@media (prefers-color-scheme: dark) {
:root { --back: #14181f; --ink: #e6eaf0; --soft: #97a1b0; --grid: #2a313c; --s0: #6aa5f0; --s1: #f0955c; }
}
body { margin: 2rem auto; max-width: 1040px; padding: 0 1rem; background: var(--back); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0; }
p { color: var(--soft); margin: .3rem 0 1.5rem; }
main { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%%), 1fr)); gap: 1.5rem; }
figure { margin: 0; }
figcaption { font-weight: 600; }
svg { width: 100%%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--soft); }
.x { text-anchor: middle; }
.y, .key { text-anchor: end; }
.grid { stroke: var(--grid); }
polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
polyline.s0 { stroke: var(--s0); } polyline.s1 { stroke: var(--s1); }
circle.s0, svg text.s0 { fill: var(--s0); } circle.s1, svg text.s1 { fill: var(--s1); }
svg text.near { fill: var(--ink); stroke: var(--back); stroke-width: 4px; stroke-linejoin: round; paint-order: stroke; }
div { margin-top: 1.5rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%%; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--grid); white-space: nowrap; }
th { color: var(--soft); font-weight: 500; }
</style></head><body>
<h1>%s</h1><p>%s</p>
<main>
`
