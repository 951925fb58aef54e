package report

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

// Named is the results of one file and the file's name.
type Named struct {
	Name    string
	Results []Saved
}

// Compare compares the results of two files: each figure of both, B over A, and whether B is better
// or worse. In files of several results (a sweep) it compares those with the same request rate and
// concurrency.
func Compare(a, b Named) (string, error) {
	pairs := pairUp(a.Results, b.Results)
	if len(pairs) == 0 {
		return "", fmt.Errorf("%s and %s have no run in common: request rate and maximum concurrency differ in all", a.Name, b.Name)
	}
	t := &table{}
	for i, p := range pairs {
		if i > 0 {
			t.WriteByte('\n')
		}
		compare(t, a.Name, b.Name, p[0], p[1])
	}
	if n := max(len(a.Results), len(b.Results)) - len(pairs); n > 0 {
		fmt.Fprintf(t, "\n%d runs of one file have no counterpart in the other.\n", n)
	}
	return t.String(), nil
}

func pairUp(a, b []Saved) (out [][2]Saved) {
	if len(a) == 1 && len(b) == 1 {
		return [][2]Saved{{a[0], b[0]}}
	}
	key := func(s Saved) string { return s.word("request_rate") + " " + s.word("max_concurrency") }
	left := slices.Clone(b)
	for _, x := range a {
		i := slices.IndexFunc(left, func(y Saved) bool { return key(x) == key(y) })
		if i >= 0 {
			out = append(out, [2]Saved{x, left[i]})
			left = slices.Delete(left, i, i+1)
		}
	}
	return out
}

// settings must be equal for figures to be comparable.
var settings = []struct{ key, name string }{
	{"backend", "backend"}, {"model_id", "model"}, {"num_prompts", "prompts"}, {"request_rate", "request rate"},
	{"burstiness", "burstiness"}, {"max_concurrency", "maximum concurrency"}, {"total_input_tokens", "input tokens"},
}

// measure is a row of a comparison.
type measure struct {
	key, name string
	// better is 1 where a larger figure is better, -1 where a smaller one is, 0 where neither.
	better float64
}

var measures = []measure{
	{"completed", "Successful requests", 0}, {"failed", "Failed requests", -1}, {"duration", "Benchmark duration (s)", 0},
	{"total_output_tokens", "Total generated tokens", 0}, {"request_throughput", "Request throughput (req/s)", 1},
	{"request_goodput", "Request goodput (req/s)", 1}, {"output_throughput", "Output token throughput (tok/s)", 1},
	{"max_output_tokens_per_s", "Peak output token throughput (tok/s)", 1}, {"total_token_throughput", "Total token throughput (tok/s)", 1},
}

var speculative = []measure{
	{"spec_decode_acceptance_rate", "Acceptance rate (%)", 1}, {"spec_decode_acceptance_length", "Acceptance length", 1},
}

// latencyKey matches the keys of figures in milliseconds, such as p99_ttft_ms.
var latencyKey = regexp.MustCompile(`^(mean|median|p[0-9.]+)_(ttft|tpot|itl|e2el)_ms$`)

func compare(t *table, nameA, nameB string, a, b Saved) {
	t.title(" Comparison ", '=')
	for _, x := range []struct {
		letter, name string
		s            Saved
	}{{"A", nameA, a}, {"B", nameB, b}} {
		fmt.Fprintf(t, "%s: %s (%s, %s, rate %s, concurrency %s)\n", x.letter, x.name, x.s.word("model_id"), x.s.word("date"),
			x.s.word("request_rate"), x.s.word("max_concurrency"))
	}
	for _, s := range settings {
		if va, vb := a.word(s.key), b.word(s.key); va != vb {
			fmt.Fprintf(t, "Not the same work: %s is %s in A and %s in B.\n", s.name, va, vb)
		}
	}
	fmt.Fprintf(t, "%-38s %12s %12s %8s %9s\n", "", "A", "B", "B/A", "change")
	for _, m := range slices.Concat(measures, latencies(a, b), speculative) {
		m.row(t, a, b)
	}
	t.title("", '=')
}

// latencies returns the latency rows that both results have, in the order of the printed table.
func latencies(a, b Saved) []measure {
	type row struct {
		measure
		order float64
	}
	var rows []row
	for key := range a {
		m := latencyKey.FindStringSubmatch(key)
		if _, both := b[key]; m == nil || !both {
			continue
		}
		section := slices.IndexFunc(sections, func(s struct{ metric, title, short string }) bool { return s.metric == m[2] })
		r := row{measure{key, strings.ToUpper(m[1][:1]) + m[1][1:] + " " + sections[section].short + " (ms)", -1}, float64(section) * 1000}
		switch m[1] {
		case "mean":
			r.order += 1
		case "median":
			r.order += 2
		default:
			var p float64
			fmt.Sscanf(m[1], "p%f", &p)
			r.order += 3 + p
		}
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(x, y row) int {
		if x.order != y.order {
			if x.order < y.order {
				return -1
			}
			return 1
		}
		return strings.Compare(x.key, y.key)
	})
	out := make([]measure, len(rows))
	for i, r := range rows {
		out[i] = r.measure
	}
	return out
}

// row writes a figure that both results have.
func (m measure) row(t *table, a, b Saved) {
	x, okA := a.number(m.key)
	y, okB := b.number(m.key)
	if !okA || !okB {
		return
	}
	ratio, change := "-", "-"
	if x != 0 {
		ratio, change = fmt.Sprintf("%.2fx", y/x), fmt.Sprintf("%+.1f%%", (y/x-1)*100)
	} else if y == 0 {
		change = "+0.0%"
	}
	fmt.Fprintf(t, "%-38s %12s %12s %8s %9s", m.name, figure(x), figure(y), ratio, change)
	switch d := (y - x) * m.better; {
	case d > 0:
		t.WriteString("  better")
	case d < 0:
		t.WriteString("  worse")
	}
	t.WriteByte('\n')
}

// figure formats whole numbers without decimals and others with two.
func figure(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.2f", x)
}
