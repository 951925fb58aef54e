package picture

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"vapp.dev/appliance/plan"
)

// Limits of the drawing's width, in columns.
const (
	narrowest = 40
	widest    = 120
)

// rows is the height of the curve.
const rows = 5

// fills distinguish the bar's parts without colours.
var fills = []string{"█", "▓", "▒", "▚", "▞", "╱", "╲", "·"}

// colours are the colours of the parts, as codes of the terminal's palette.
var colours = map[string]int{
	"weights": 34, "KV cache": 32, "scratch": 33, "adapters": 36, "driver, graphs": 35, "process": 36, "reserve": 31, "free": 90,
}

// Terminal returns p drawn for a terminal of that width. Without colour the parts of the bar
// differ by their fill.
func Terminal(p *plan.Plan, width int, colour bool) string {
	width = min(widest, max(narrowest, width))
	pic := Of(p)
	var b strings.Builder
	pic.bar(&b, width, colour)
	b.WriteByte('\n')
	pic.curve(&b, width, colour)
	return b.String()
}

// paint colours a text.
func paint(s, part string, colour bool) string {
	if !colour {
		return s
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colours[part], s)
}

func (p Picture) fill(i int, colour bool) string {
	switch {
	case p.Segments[i].Name == "free":
		return "·"
	case colour:
		return "█"
	}
	return fills[i%(len(fills)-1)]
}

func (p Picture) bar(b *strings.Builder, width int, colour bool) {
	b.WriteString("  ")
	for i, n := range p.columns(width - 4) {
		b.WriteString(paint(strings.Repeat(p.fill(i, colour), n), p.Segments[i].Name, colour))
	}
	fmt.Fprintf(b, "\n  0%*s\n", width-5, plan.Size(p.Total))
	line, used := "  ", 2
	for i, s := range p.Segments {
		text := fmt.Sprintf("%s %s", s.Name, plan.Size(s.Bytes))
		n := utf8.RuneCountInString(text) + 5
		if used+n > width && used > 2 {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line, used = "  ", 2
		}
		line += paint(p.fill(i, colour), s.Name, colour) + " " + text + "   "
		used += n
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

// eighths are the characters for 0 to 8 eighths of a row's height.
var eighths = []rune(" ▁▂▃▄▅▆▇█")

func (p Picture) curve(b *strings.Builder, width int, colour bool) {
	label := len(plan.Group(int64(p.at(0).Sequences)))
	cols := width - label - 5
	fmt.Fprintf(b, "  sequences that fit, by length in tokens (logarithmic; at most %d run)\n", p.Cap)
	for row := rows - 1; row >= 0; row-- {
		var line strings.Builder
		for c := range cols {
			h := p.height(p.at(float64(c)/float64(cols-1)).Sequences)*rows - float64(row)
			line.WriteRune(eighths[int(math.Round(8*min(1, max(0, h))))])
		}
		text := ""
		switch row {
		case rows - 1:
			text = plan.Group(int64(p.at(0).Sequences))
		case 0:
			text = plan.Group(int64(p.at(1).Sequences))
		}
		fmt.Fprintf(b, "  %*s %s\n", label, text, paint(strings.TrimRight(line.String(), " "), "KV cache", colour))
	}
	fmt.Fprintf(b, "  %*s %s\n", label, "", p.axis(cols))
}

// axis returns the marks of the lengths in that many columns, as many as have two spaces between
// them: all, every other one, and so on, counted from the longest length.
func (p Picture) axis(cols int) string {
	ticks := p.ticks()
	for step := 1; ; step++ {
		line, free := []rune(strings.Repeat(" ", cols)), cols
		fits := true
		for i := len(ticks) - 1; i >= 0; i -= step {
			text := length(ticks[i])
			from := int(math.Round(p.share(ticks[i])*float64(cols-1))) - len(text)/2
			if i == len(ticks)-1 {
				from = cols - len(text)
			}
			if from = max(0, from); from+len(text)+2 > free && i < len(ticks)-1 {
				fits = false
				break
			}
			copy(line[from:], []rune(text))
			free = from
		}
		if fits || step > len(ticks) {
			return string(line)
		}
	}
}
