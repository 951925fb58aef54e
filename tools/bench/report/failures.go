package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Printable makes foreign text safe for a terminal: invalid UTF-8, control characters and
// characters that change the text direction become U+FFFD.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// Uncounted returns a note on successful requests whose output tokens the tokenizer counted,
// because the server sent no usage; "" where there are none.
func (r *Result) Uncounted() string {
	n := 0
	for i := range r.Traces {
		if t := &r.Traces[i]; t.Failure == nil && t.Counted {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("No usage came with %d of %d successful requests: the tokenizer counted what they generated.\n", n, r.Completed)
}

// Failures returns a list of the reasons of failed requests, the most frequent first, with the
// number of requests and the detail of the first one; "" where none failed.
func (r *Result) Failures() string {
	type group struct {
		first *Failure
		n     int
	}
	var groups []*group
	by := map[string]*group{}
	for i := range r.Traces {
		f := r.Traces[i].Failure
		if f == nil {
			continue
		}
		g := by[f.Reason]
		if g == nil {
			g = &group{first: f}
			by[f.Reason] = g
			groups = append(groups, g)
		}
		g.n++
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return b.n - a.n })
	var b strings.Builder
	for i, g := range groups {
		if i == 0 {
			b.WriteString("Failed requests by reason:\n")
		}
		fmt.Fprintf(&b, "%7d  %s\n", g.n, g.first.Error())
	}
	return b.String()
}
