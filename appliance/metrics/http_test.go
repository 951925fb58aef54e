package metrics

import (
	"strings"
	"testing"
	"time"
)

func TestAnswered(t *testing.T) {
	m := New(testConfig())
	for _, a := range []Answered{
		{Method: "POST", Handler: "/v1/echo", Status: 200, In: 7, Out: 7, Duration: time.Second},
		{Method: "POST", Handler: "/v1/echo", Status: 200, In: 3, Out: 3},
		{Method: "GET", Handler: "/stream", Status: 200, Out: 5},
		{Method: "GET", Status: 404},
		{Method: "GET", Status: 404},
		{Method: "BREW", Status: 404},
		{Method: "GET", Handler: "/health", Status: 200},
		{Method: "POST", Handler: "/panic", Status: 418, In: 1},
	} {
		m.Answered(a)
	}
	text, _ := scrape(t, m, "")
	for _, want := range []string{
		`http_requests_total{handler="/v1/echo",method="POST",status="2xx"} 2`,
		`http_requests_total{handler="/stream",method="GET",status="2xx"} 1`,
		`http_requests_total{handler="none",method="GET",status="4xx"} 2`,
		`http_requests_total{handler="none",method="other",status="4xx"} 1`,
		`http_requests_total{handler="/panic",method="POST",status="4xx"} 1`,
		`http_request_size_bytes_sum{handler="/v1/echo"} 10`,
		`http_response_size_bytes_sum{handler="/v1/echo"} 10`,
		`http_response_size_bytes_sum{handler="/stream"} 5`,
		`http_request_duration_seconds_count{handler="/v1/echo",method="POST"} 2`,
		`http_request_duration_seconds_bucket{handler="/v1/echo",method="POST",le="0.5"} 1`,
		`http_request_duration_highr_seconds_count 7`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(text, "/health") || strings.Contains(text, "BREW") {
		t.Error("counts a probe, or takes a client's word as a label")
	}
}
