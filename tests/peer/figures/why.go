package figures

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// writeWhy writes for every row that misses a target the times of its ops, measured in the
// same run, and the result at the machine's limit.
func writeWhy(b *strings.Builder, rows []row) {
	for _, r := range rows {
		missed := r.missed()
		if len(missed) == 0 {
			continue
		}
		fmt.Fprintf(b, "- %s: %s.", r.name(), strings.Join(missed, "; "))
		for _, line := range r.reasons() {
			fmt.Fprintf(b, " %s%s.", strings.ToUpper(line[:1]), line[1:])
		}
		b.WriteString("\n")
	}
}

// missed returns the targets that were measured and not met, each with its value at the
// machine's limit.
func (r row) missed() (texts []string) {
	for _, t := range r.targets {
		if !t.measured() || t.met() {
			continue
		}
		text := fmt.Sprintf("%s, it is %s", t.text, t)
		if t.limit > 0 {
			text += " and at the limit " + t.atLimit()
		}
		if t.beyond() {
			text += ", out of reach on this machine"
		}
		texts = append(texts, text)
	}
	return texts
}

// reasons returns one line per kind of step in the row's work; for memory and the server, a
// line with their parts.
func (r row) reasons() []string {
	one := func(prompt int) func(Work) bool {
		return func(w Work) bool { return w.Streams == 1 && w.Prompt == prompt }
	}
	many := func(w Work) bool { return w.Streams > 1 }
	var steps []Step
	switch r.key {
	case Decode:
		steps = r.part.steps(r.side, "decode", one(1))
	case Prefill512:
		steps = r.part.steps(r.side, "prefill", one(512))
	case Prefill2048:
		steps = r.part.steps(r.side, "prefill", one(2048))
	case Sixteen, Served:
		steps = r.part.steps(r.side, "", many)
	case TTFT:
		steps = r.part.steps(r.side, "prefill", many)
	case Peak:
		return r.part.listed(r.side, Item, "planned are, in MiB: ", 1<<20)
	case ServerShare:
		return r.part.listed(r.side, ServerPart, "in percent: ", 1)
	}
	var out []string
	for _, s := range steps {
		out = append(out, s.why())
	}
	if len(out) == 0 {
		return []string{"its profile was not measured"}
	}
	return out
}

// listed returns the figures of a side whose keys begin with prefix, largest first.
func (p Part) listed(side, prefix, head string, unit float64) []string {
	sizes := map[string]float64{}
	for _, r := range p.Runs {
		for k, v := range r.Values {
			if name, ok := strings.CutPrefix(k, prefix); ok && r.Side == side && v > 0 {
				sizes[name] = v / unit
			}
		}
	}
	names := slices.Sorted(maps.Keys(sizes))
	slices.SortStableFunc(names, func(a, b string) int {
		return int(sizes[b]*1e3) - int(sizes[a]*1e3)
	})
	var words []string
	for _, n := range names {
		if sizes[n] >= 0.05 {
			words = append(words, n+" "+number(sizes[n]))
		}
	}
	if len(words) == 0 {
		return []string{"what it consists of was not measured"}
	}
	return []string{head + strings.Join(words, ", ")}
}
