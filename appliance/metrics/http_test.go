package metrics

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// served is a small server that counts, and its metrics.
func served(t *testing.T) (*Metrics, *httptest.Server) {
	t.Helper()
	m := New(testConfig())
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/echo", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "12345")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
	})
	mux.HandleFunc("POST /panic", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		panic(http.ErrAbortHandler)
	})
	route := func(r *http.Request) string {
		_, pattern := mux.Handler(r)
		_, path, _ := strings.Cut(pattern, " ")
		return path
	}
	s := httptest.NewServer(m.Instrument(mux, route))
	t.Cleanup(s.Close)
	return m, s
}

func TestInstrument(t *testing.T) {
	m, s := served(t)
	send := func(method, path, body string) {
		t.Helper()
		r, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			if path == "/panic" {
				return
			}
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil && path != "/panic" {
			t.Fatal(err)
		}
	}
	send("POST", "/v1/echo", "1234567")
	send("POST", "/v1/echo", "123")
	send("GET", "/stream", "")
	send("GET", "/nowhere", "")
	send("GET", "/nowhere/else", "")
	send("BREW", "/nowhere", "")
	send("GET", "/health", "")
	send("POST", "/panic", "x")
	s.Close()
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
		`http_request_duration_seconds_bucket{handler="/stream",method="GET",le="+Inf"} 1`,
		`http_request_duration_highr_seconds_count 7`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(text, "/health") || strings.Contains(text, "/nowhere") || strings.Contains(text, "BREW") {
		t.Error("counts a probe, or takes a client's word as a label")
	}
}
