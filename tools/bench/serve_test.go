package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"vapp.dev/tools/bench/report"
	"vapp.dev/tools/bench/workload"
)

// words is a tokenizer for tests with one token per word.
type words struct{}

func (words) Encode(_ context.Context, text string) ([]int32, error) {
	return make([]int32, len(strings.Fields(text))), nil
}

func (words) Decode(_ context.Context, ids []int32) (string, error) {
	return strings.Repeat("w ", len(ids)), nil
}

func (words) Vocabulary(context.Context) (workload.Vocabulary, error) {
	return workload.Vocabulary{Size: 3, Allowed: []int32{0, 1, 2}}, nil
}

// record returns one chunk of a completion.
func record(text string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"text\":%q,\"finish_reason\":null}]}\n\n", text)
}

const (
	usage3 = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":3,\"total_tokens\":7}}\n\n"
	done   = "data: [DONE]\n\n"
)

// serving returns a run of n requests against a handler.
func serving(t *testing.T, n int, answer http.HandlerFunc) *Run {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodGet && !strings.HasPrefix(t.Name(), "TestSpeculation") {
			http.NotFound(w, q)
			return
		}
		answer(w, q)
	}))
	t.Cleanup(s.Close)
	client := Client(false)
	t.Cleanup(client.CloseIdleConnections)
	return &Run{
		Server:   &Server{BaseURL: s.URL, Endpoint: "/v1/completions", Client: client},
		Params:   RequestParams{Backend: Completions, Model: "m", IDPrefix: "t-"},
		Requests: make([]workload.Request, n), Arrivals: workload.Arrivals{Rate: math.Inf(1), Burstiness: 1},
		Timeout: time.Minute, Tokenizer: words{}, KeepText: true,
		Setup: report.Setup{Rate: math.Inf(1), Metrics: []string{report.TTFT}, Percentiles: []float64{99}}, Log: io.Discard,
	}
}

// withOutput sets the output length of each request to n.
func (r *Run) withOutput(n int) *Run {
	for i := range r.Requests {
		r.Requests[i] = workload.Request{Prompt: fmt.Sprint("p", i), Tokens: 4, Output: n}
	}
	return r
}

// TestServe checks lengths from usage, the kept text, and one gap fewer than chunks.
func TestServe(t *testing.T) {
	r := serving(t, 5, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, record("a")+": a comment\n\n"+record(" b")+record("")+usage3+done)
	}).withOutput(3)
	got, err := r.Serve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Completed != 5 || got.Failed != 0 || got.Input != 20 || got.Output != 15 {
		t.Fatalf("%d completed, %d failed, %d in, %d out\n%s", got.Completed, got.Failed, got.Input, got.Output, got.Failures())
	}
	for i, x := range got.Traces {
		if len(x.ITL) != 2 || x.Text != "a b" || x.TTFT <= 0 || x.Latency < x.TTFT {
			t.Errorf("request %d: %+v", i, x)
		}
	}
}

// TestAnnounce checks the lines above the table, which are those of vLLM's client.
func TestAnnounce(t *testing.T) {
	for want, r := range map[string]Run{
		"Traffic request rate: inf\nBurstiness factor: 1.0 (Poisson process)\nMaximum request concurrency: None\n": {Arrivals: workload.Arrivals{Rate: math.Inf(1), Burstiness: 1}},
		"Traffic request rate: 0.5\nBurstiness factor: 2.5 (Gamma distribution)\nMaximum request concurrency: 8\n": {Arrivals: workload.Arrivals{Rate: 0.5, Burstiness: 2.5}, MaxConcurrency: 8},
		"Traffic ramp-up strategy: linear.\nWill increase RPS from 1 to 10 RPS over the duration of the benchmark.\nBurstiness factor: 1.0 (Poisson process)\nMaximum request concurrency: None\n": {
			Arrivals: workload.Arrivals{Rate: math.Inf(1), Burstiness: 1, RampUp: "linear", Start: 1, End: 10}},
	} {
		var log strings.Builder
		r.Log = &log
		if r.announce(); log.String() != want {
			t.Errorf("%q, want %q", log.String(), want)
		}
	}
}
