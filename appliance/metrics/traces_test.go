package metrics

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine"
)

// traced is an observer with a trace; "" is one that is not recorded.
type traced string

func (traced) Submitted(engine.Request)  {}
func (traced) Ended(engine.RequestStats) {}

const openMetrics = "application/openmetrics-text; version=1.0.0"

// TestExemplars checks that every histogram of a request's times has the trace of its last request in OpenMetrics, that
// requests without one leave none, and that the text format is the same as without traces.
func TestExemplars(t *testing.T) {
	c := testConfig()
	plain := New(c)
	c.TraceID = func(o engine.Observer) string { return string(o.(traced)) }
	m := New(c)
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	for i, o := range []engine.Observer{traced("0af7651916cd43dd8448eb211c80319c"), nil, traced("")} {
		for _, m := range []*Metrics{m, plain} {
			h := m.Hooks(m.cfg)
			first := at(100 * (i + 1))
			h.Step(engine.StepStats{
				FirstTokens: []time.Duration{first.Sub(t0)}, FirstObservers: []engine.Observer{o},
				BetweenTokens: []time.Duration{time.Millisecond, 30 * time.Millisecond, 2 * time.Millisecond}, BetweenObservers: []engine.Observer{nil, o, nil},
			})
			h.Finished(engine.RequestStats{
				ID: "a", Finish: engine.FinishStop, PromptTokens: 4, GenerationTokens: 2, N: 1, Observer: o,
				Arrival: t0, Queued: t0, Scheduled: at(1), FirstToken: first, LastToken: first.Add(time.Second), Finished: first.Add(time.Second),
			})
		}
	}
	text, header := scrape(t, m, openMetrics)
	if !strings.HasPrefix(header.Get("Content-Type"), "application/openmetrics-text") || !strings.HasSuffix(text, "# EOF\n") {
		t.Fatal(header)
	}
	var got []string
	for _, line := range regexp.MustCompile(`(?m)^(vllm:\w+)_bucket\{.*,le="([0-9.]+|\+Inf)"\} \d+ # \{trace_id="0af7651916cd43dd8448eb211c80319c"\} [0-9.e+-]+ [0-9.e+]+$`).FindAllStringSubmatch(text, -1) {
		got = append(got, line[1])
	}
	want := []string{
		"vllm:e2e_request_latency_seconds", "vllm:inter_token_latency_seconds", "vllm:request_decode_time_seconds", "vllm:request_inference_time_seconds",
		"vllm:request_prefill_time_seconds", "vllm:request_queue_time_seconds", "vllm:request_time_per_output_token_seconds", "vllm:time_to_first_token_seconds",
	}
	if !slices.Equal(got, want) || strings.Count(text, "trace_id") != len(want) {
		t.Errorf("exemplars of %q in\n%s", got, text)
	}
	with, _ := scrape(t, m, "")
	without, _ := scrape(t, plain, "")
	if ours(with) != ours(without) || strings.Contains(with, "trace_id") {
		t.Error("exemplars change the text format")
	}
}

// TestTraces checks the series of spans.
func TestTraces(t *testing.T) {
	c := testConfig()
	c.Traces = func() Traces { return Traces{Exported: 5, Queue: 2, Failed: 3} }
	text := body(t, New(c))
	for _, want := range []string{"vapp_trace_spans_exported_total 5", `vapp_trace_spans_dropped_total{reason="queue"} 2`, `vapp_trace_spans_dropped_total{reason="export"} 3`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if text := body(t, New(testConfig())); strings.Contains(text, "vapp_trace") {
		t.Error("series of spans without traces")
	}
}
