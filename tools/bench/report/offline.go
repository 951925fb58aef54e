package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Latency holds the times of the finished batches; Asked is the number that was requested.
type Latency struct {
	Seconds []float64
	Asked   int
}

// Some reports whether there is a figure to show.
func (l Latency) Some() bool { return len(l.Seconds) > 0 }

func (l Latency) partial() bool { return len(l.Seconds) < l.Asked }

// unfinished returns a note on an interrupted run.
func unfinished(done, of int, what string) string {
	return fmt.Sprintf("Interrupted: %d of %d %s were finished, and the figures are of those alone.\n", done, of, what)
}

// latencyPercentiles are the percentiles that are printed and saved.
var latencyPercentiles = []float64{10, 25, 50, 75, 90, 99}

// Text returns the printed result.
func (l Latency) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Avg latency: %s seconds\n", plain(l.avg()))
	for _, p := range latencyPercentiles {
		fmt.Fprintf(&b, "%s%% percentile latency: %s seconds\n", word(p), plain(Percentile(l.Seconds, p)))
	}
	if l.partial() {
		b.WriteString(unfinished(len(l.Seconds), l.Asked, "iterations"))
	}
	return b.String()
}

func (l Latency) avg() float64 {
	if len(l.Seconds) == 0 {
		return 0
	}
	return mean(l.Seconds)
}

// JSON returns the saved result.
func (l Latency) JSON() ([]byte, error) {
	var o, by object
	for _, p := range latencyPercentiles {
		by.add(word(p), Percentile(l.Seconds, p))
	}
	o.add("avg_latency", l.avg())
	o.add("latencies", append([]float64{}, l.Seconds...))
	o.add("percentiles", by)
	if l.partial() {
		o.add("partial", true)
	}
	return indented(o)
}

// Throughput holds the time of a workload and what was finished of the Asked requests.
type Throughput struct {
	Seconds                        float64
	Asked, Requests, Input, Output int
}

// Some reports whether there is a figure to show.
func (t Throughput) Some() bool { return t.Requests > 0 }

func (t Throughput) partial() bool { return t.Requests < t.Asked }

func (t Throughput) per(n int) float64 {
	if t.Seconds <= 0 {
		return 0
	}
	return float64(n) / t.Seconds
}

// Text returns the printed result.
func (t Throughput) Text() string {
	text := fmt.Sprintf("Throughput: %.2f requests/s, %.2f total tokens/s, %.2f output tokens/s\nTotal num prompt tokens:  %d\nTotal num output tokens:  %d\n",
		t.per(t.Requests), t.per(t.Input+t.Output), t.per(t.Output), t.Input, t.Output)
	if t.partial() {
		text += unfinished(t.Requests, t.Asked, "requests")
	}
	return text
}

// JSON returns the saved result.
func (t Throughput) JSON() ([]byte, error) {
	var o object
	o.add("elapsed_time", t.Seconds)
	o.add("num_requests", t.Requests)
	o.add("total_num_tokens", t.Input+t.Output)
	o.add("requests_per_second", t.per(t.Requests))
	o.add("tokens_per_second", t.per(t.Input+t.Output))
	if t.partial() {
		o.add("partial", true)
	}
	return indented(o)
}

// plain formats a number with all its digits.
func plain(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

func indented(o object) ([]byte, error) {
	text, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "    "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}
