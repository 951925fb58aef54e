package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Printable is text of others as a terminal may get it: what is no UTF-8, controls what is
// shown, or turns its direction becomes U+FFFD.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// Uncounted says how many successful requests the server told no count of tokens for, so
// that the tokenizer made it; "" where there are none.
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

// Failures says how many requests failed for which reason, with what was seen of the
// first of each; "" where none did. The most frequent reason comes first.
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
