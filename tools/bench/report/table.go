package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

const width = 50

// sections are the metrics with their titles and the names of their rows.
var sections = []struct{ metric, title, short string }{
	{TTFT, "Time to First Token", "TTFT"},
	{TPOT, "Time per Output Token (excl. 1st token)", "TPOT"},
	{ITL, "Inter-token Latency", "ITL"},
	{E2EL, "End-to-end Latency", "E2EL"},
}

// table collects rows.
type table struct{ strings.Builder }

// title writes text centered in a line of fill.
func (t *table) title(text string, fill byte) {
	space := max(width-len(text), 0)
	left := space / 2
	t.WriteString(strings.Repeat(string(fill), left) + text + strings.Repeat(string(fill), space-left) + "\n")
}

func (t *table) count(label string, n int) { fmt.Fprintf(t, "%-40s %-10d\n", label, n) }

func (t *table) value(label string, x float64) { fmt.Fprintf(t, "%-40s %-10.2f\n", label, x) }

// Table returns the printed result.
func (r *Result) Table() string {
	t := &table{}
	t.title(" Serving Benchmark Result ", '=')
	r.counts(t)
	for _, s := range sections {
		if !r.shows(s.metric) {
			continue
		}
		by := r.By[s.metric]
		t.title(s.title, '-')
		t.value("Mean "+s.short+" (ms):", by.Mean)
		t.value("Median "+s.short+" (ms):", by.Median)
		for i, p := range r.Percentiles {
			t.value("P"+word(p)+" "+s.short+" (ms):", by.Percentiles[i])
		}
	}
	if r.Speculation.hasDrafts() {
		r.Speculation.rows(t)
	}
	t.title("", '=')
	return t.String()
}

func (r *Result) counts(t *table) {
	t.count("Successful requests:", r.Completed)
	t.count("Failed requests:", r.Failed)
	if r.MaxConcurrency > 0 {
		t.count("Maximum request concurrency:", r.MaxConcurrency)
	}
	if !math.IsInf(r.Rate, 1) {
		t.value("Request rate configured (RPS):", r.Rate)
	}
	t.value("Benchmark duration (s):", r.Duration)
	t.count("Total input tokens:", r.Input)
	if !r.Pooling {
		t.count("Total generated tokens:", r.Output)
	}
	t.value("Request throughput (req/s):", r.RequestThroughput())
	if r.Goodput != nil {
		t.value("Request goodput (req/s):", r.GoodRequests())
	}
	if !r.Pooling {
		t.value("Output token throughput (tok/s):", r.OutputThroughput())
		t.value("Peak output token throughput (tok/s):", r.PeakOutput)
		t.value("Peak concurrent requests:", r.PeakConcurrent)
	}
	t.value("Total token throughput (tok/s):", r.TotalThroughput())
}

// shows reports whether a metric is printed and saved.
func (r *Result) shows(metric string) bool {
	for _, m := range r.Metrics {
		if m == metric {
			return !r.Pooling || m == E2EL
		}
	}
	return false
}

func (s *Speculation) rows(t *table) {
	t.title("Speculative Decoding", '-')
	t.value("Acceptance rate (%):", s.AcceptanceRate())
	t.value("Acceptance length:", s.AcceptanceLength())
	t.count("Drafts:", int(s.Drafts))
	t.count("Draft tokens:", int(s.DraftTokens))
	t.count("Accepted tokens:", int(s.Accepted))
	if len(s.Positions) == 0 {
		return
	}
	t.WriteString("Per-position acceptance (%):\n")
	for i := range s.Positions {
		t.value(fmt.Sprintf("  Position %d:", i), s.At(i)*100)
	}
}

// word formats the number of a percentile: 99, 99.9.
func word(p float64) string { return strconv.FormatFloat(p, 'f', -1, 64) }
