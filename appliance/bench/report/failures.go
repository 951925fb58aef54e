package report

import (
	"fmt"
	"slices"
	"strings"
)

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
