package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Thresholds classify gaps between chunks, in milliseconds: gaps up to the first are good, gaps
// beyond the second bad.
type Thresholds [2]float64

// class returns the class of a gap in seconds.
func (h Thresholds) class(gap float64) int {
	switch {
	case gap*1000 > h[1]:
		return 3
	case gap*1000 > h[0]:
		return 2
	}
	return 1
}

// Size of a timeline, in pixels. The height of a row is chosen, within bounds, so that all rows fit
// a page.
const (
	timeWide, timeLeft, timeTop = 1000, 48, 28
	timeRows, rowMost, rowLeast = 640, 14, 3
)

// Timeline returns a self-contained page with a bar for each request in the order of sends: the
// time to its first token, and then the gaps between chunks, colored by their length. Failed
// requests are outlines.
func (r *Result) Timeline(h Thresholds) string {
	var b strings.Builder
	title := "Requests over time: " + r.Model
	fmt.Fprintf(&b, pageHead, html.EscapeString(title), html.EscapeString(title), html.EscapeString(r.subtitle("")))
	b.WriteString(timeStyle)
	fmt.Fprintf(&b, "<p><span class=\"t0\">■</span> to the first token &nbsp; <span class=\"t1\">■</span> gaps up to %s ms &nbsp; <span class=\"t2\">■</span> up to %s ms &nbsp; <span class=\"t3\">■</span> longer &nbsp; <span class=\"tf\">□</span> failed</p>\n",
		word(h[0]), word(h[1]))
	from, until := r.span()
	row := math.Max(rowLeast, math.Min(rowMost, timeRows/math.Max(float64(len(r.Traces)), 1)))
	high := timeTop + row*float64(len(r.Traces)) + 8
	fmt.Fprintf(&b, "<div><svg viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"%s\">\n", timeWide, high, html.EscapeString(title))
	l := timeline{thresholds: h, from: from, scale: (timeWide - timeLeft - 8) / (until - from), row: row}
	for s := 0.0; s <= (until-from)*1.0001; s += step(until - from) {
		x := timeLeft + s*l.scale
		fmt.Fprintf(&b, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%.1f\"/><text class=\"x\" x=\"%.1f\" y=\"%d\">%s s</text>\n", x, x, timeTop-6, high, x, timeTop-12, short(s))
	}
	for i := range r.Traces {
		l.bar(&b, i, &r.Traces[i])
	}
	b.WriteString("</svg></div>\n</body></html>\n")
	return b.String()
}

// span returns the first send and the last end, in seconds; the difference is above 0.
func (r *Result) span() (from, until float64) {
	from = math.Inf(1)
	for i := range r.Traces {
		from, until = min(from, r.Traces[i].Start), max(until, r.Traces[i].Start+r.Traces[i].Latency)
	}
	if !(until > from) {
		return 0, 1
	}
	return from, until
}

// timeline maps times and requests to pixels.
type timeline struct {
	thresholds Thresholds
	from       float64 // seconds
	scale, row float64 // pixels
}

// bar draws one request. It merges gaps within half a pixel into one of the worst class among them.
func (l timeline) bar(b *strings.Builder, i int, t *Trace) {
	const least = 0.5
	x, y := timeLeft+(t.Start-l.from)*l.scale, timeTop+float64(i)*l.row
	rect := func(class string, wide float64) {
		fmt.Fprintf(b, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>", class, x, y, math.Max(wide, least), l.row*0.8)
		x += wide
	}
	b.WriteString("<g>")
	if t.Failure != nil {
		fmt.Fprintf(b, "<title>request %d, failed: %s</title>", i, html.EscapeString(t.Failure.Error()))
		rect("tf", t.Latency*l.scale)
		b.WriteString("</g>\n")
		return
	}
	fmt.Fprintf(b, "<title>request %d: %d tokens in, %d out, first after %s ms, all after %s ms</title>", i, t.Input, t.Output, two(t.TTFT*1000), two(t.Latency*1000))
	rect("t0", t.TTFT*l.scale)
	wide, class := 0.0, 0
	for k, gap := range t.ITL {
		c := l.thresholds.class(gap)
		if class != 0 && c != class && wide >= least {
			rect(fmt.Sprint("t", class), wide)
			wide, class = 0, 0
		}
		wide, class = wide+gap*l.scale, max(class, c)
		if k == len(t.ITL)-1 {
			rect(fmt.Sprint("t", class), wide)
		}
	}
	b.WriteString("</g>\n")
}

// timeStyle closes the charts' part of the page and sets the colors of the timeline.
const timeStyle = `</main>
<style>
:root { --t0: #9aa7b8; --t1: #3f9c55; --t2: #d9941f; --t3: #cc3b33; }
rect.t0 { fill: var(--t0); } rect.t1 { fill: var(--t1); } rect.t2 { fill: var(--t2); } rect.t3 { fill: var(--t3); }
rect.tf { fill: none; stroke: var(--t3); }
span.t0 { color: var(--t0); } span.t1 { color: var(--t1); } span.t2 { color: var(--t2); } span.t3, span.tf { color: var(--t3); }
</style>
`
