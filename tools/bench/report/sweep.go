package report

import (
	"bytes"
	"fmt"
	"strings"
)

// Sweep has one run for each concurrency, ascending.
type Sweep []Result

// columns are the columns of a sweep's table.
var columns = []struct {
	name  string
	width int
	of    func(r *Result) string
}{
	{"concurrency", 11, func(r *Result) string { return fmt.Sprint(r.MaxConcurrency) }},
	{"done", 6, func(r *Result) string { return fmt.Sprint(r.Completed) }},
	{"failed", 6, func(r *Result) string { return fmt.Sprint(r.Failed) }},
	{"req/s", 9, func(r *Result) string { return two(r.RequestThroughput()) }},
	{"output tok/s", 12, func(r *Result) string { return two(r.OutputThroughput()) }},
	{"total tok/s", 12, func(r *Result) string { return two(r.TotalThroughput()) }},
	{"p50 TTFT ms", 12, func(r *Result) string { return two(r.Percentile(TTFT, 50)) }},
	{"p99 TTFT ms", 12, func(r *Result) string { return two(r.Percentile(TTFT, 99)) }},
	{"p50 ITL ms", 11, func(r *Result) string { return two(r.Percentile(ITL, 50)) }},
	{"p99 ITL ms", 11, func(r *Result) string { return two(r.Percentile(ITL, 99)) }},
	{"p50 E2EL ms", 12, func(r *Result) string { return two(r.Percentile(E2EL, 50)) }},
}

func two(x float64) string { return fmt.Sprintf("%.2f", x) }

// Table returns a table with one line for each run.
func (s Sweep) Table() string {
	var b strings.Builder
	for i := -1; i < len(s); i++ {
		for k, c := range columns {
			text := c.name
			if i >= 0 {
				text = c.of(&s[i])
			}
			if k > 0 {
				b.WriteString("  ")
			}
			fmt.Fprintf(&b, "%*s", c.width, text)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// JSON returns the list of the runs' results.
func (s Sweep) JSON(detailed bool) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('[')
	for i := range s {
		if i > 0 {
			b.WriteString(",\n")
		}
		text, err := s[i].JSON(detailed)
		if err != nil {
			return nil, err
		}
		b.Write(text)
	}
	b.WriteByte(']')
	return b.Bytes(), nil
}
