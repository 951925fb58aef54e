package metrics

import (
	"strings"
	"testing"
	"time"
)

func TestObserveRequest(t *testing.T) {
	m := New(testConfig())
	for _, a := range []HTTPRequest{
		{Method: "POST", Handler: "/v1/completions", Status: 200, In: 7, Out: 100, Duration: 400 * time.Millisecond},
		{Method: "POST", Handler: "/v1/completions", Status: 201, In: 3, Out: 11, Duration: 2 * time.Second},
		{Method: "POST", Handler: "/v1/completions", Status: 429, Duration: time.Millisecond},
		{Method: "GET", Status: 404},
		{Method: "BREW", Status: 404},
		{Method: "GET", Handler: "/health", Status: 200},
		{Method: "GET", Handler: "/readyz", Status: 503},
		{Method: "GET", Handler: "/metrics", Status: 200},
		{Method: "GET", Handler: "/v1/models/:model", Status: 500},
	} {
		m.ObserveRequest(a)
	}
	text, _ := scrape(t, m, "")
	var got strings.Builder
	for _, line := range strings.SplitAfter(text, "\n") {
		if strings.HasPrefix(line, "http_") {
			got.WriteString(line)
		}
	}
	golden(t, "http.txt", got.String())
}
