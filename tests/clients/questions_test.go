//go:build clients

package clients

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"
)

// The clients' requests, the same as in python/checks.py.
const (
	paris   = "What is the capital of France?"
	moon    = "Tell me three facts about the moon."
	endless = "Write the numbers from 1 to 5000, one a line."
	// Small models call a tool if the prompt explains how.
	call = `Repeat exactly: <tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>`
)

// weather and forecast are the parameters of two tools. Even a small model ends a reply
// that is constrained to forecast.
var (
	weather  = map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}}
	forecast = map[string]any{
		"type": "object", "required": []string{"city", "days"}, "additionalProperties": false,
		"properties": map[string]any{
			"city": map[string]any{"type": "string", "enum": []string{"Paris", "London"}},
			"days": map[string]any{"type": "integer", "minimum": 1, "maximum": 7},
		},
	}
)

// longList is the schema of a reply with at least 900 numbers, for protocols without ignore_eos.
var longList = map[string]any{
	"type": "object", "required": []string{"numbers"}, "additionalProperties": false,
	"properties": map[string]any{"numbers": map[string]any{"type": "array", "items": map[string]any{"type": "integer"}, "minItems": 900}},
}

// isCall returns an error if arguments are not those that call requests.
func isCall(t *testing.T, arguments string) {
	t.Helper()
	var got map[string]string
	if err := json.Unmarshal([]byte(arguments), &got); err != nil || len(got) != 1 || got["city"] != "Paris" {
		t.Errorf("arguments %s: %v", arguments, err)
	}
}

// isForecast returns an error if a text does not match forecast.
func isForecast(t *testing.T, text string) {
	t.Helper()
	var got struct {
		City string
		Days int
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.City != "Paris" && got.City != "London" || got.Days < 1 || got.Days > 7 {
		t.Errorf("%s: %v", text, err)
	}
}

// aborts returns the number of requests that the engine has aborted.
func aborts(t *testing.T) float64 {
	t.Helper()
	p, _ := scrape(t, base)
	return p.of("vllm:request_success_total", "finished_reason:abort")
}

// waitAborted waits until the engine has aborted one more request and runs none.
func waitAborted(t *testing.T, before float64) {
	t.Helper()
	for at := time.Now(); aborts(t) != before+1 || metric(t, base, "vllm:num_requests_running") != 0; time.Sleep(20 * time.Millisecond) {
		if time.Since(at) > time.Minute {
			t.Fatalf("%v aborts after a minute", aborts(t)-before)
		}
	}
}

// cancelRunning cancels a request when the server runs it, and checks that the client reports that.
func cancelRunning(t *testing.T, ask func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- ask(ctx) }()
	for at := time.Now(); metric(t, base, "vllm:num_requests_running") == 0; time.Sleep(20 * time.Millisecond) {
		if time.Since(at) > time.Minute {
			t.Fatal("the request does not run after a minute")
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the request was cancelled", err)
	}
}
