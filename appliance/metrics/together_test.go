package metrics

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestTogether: the series of two models in one process are exposed together, each family once and
// each series with the name of its model; those of the process are there once.
func TestTogether(t *testing.T) {
	a := New(Config{Model: "a", MaxModelLen: 64, Together: true, First: true, Cache: CacheConfig{SwapBytes: 1}})
	b := New(Config{Model: "b", MaxModelLen: 64, Together: true, Drafts: 1, KVEvents: func() KVEvents { return KVEvents{} }})
	a.WatchDrift(func() map[string]bool { return map[string]bool{"x": true} }, func() int64 { return 0 })
	b.WatchDrift(func() map[string]bool { return map[string]bool{"x": false} }, func() int64 { return 0 })
	for _, m := range []*Metrics{a, b} {
		m.ObserveRequest(HTTPRequest{Method: "POST", Handler: "/v1/completions", Status: 200})
		m.SetPlan("weights", 5)
	}
	w := httptest.NewRecorder()
	Expose(prometheus.Gatherers{a.Gatherer(), b.Gatherer()}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text, _ := io.ReadAll(w.Body)
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, text)
	}
	types := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); strings.HasPrefix(line, "# TYPE ") {
			types[f[2]]++
		} else if !strings.HasPrefix(line, "#") && !strings.Contains(line, `model_name="`) && !strings.HasPrefix(line, "go_") && !strings.HasPrefix(line, "process_") {
			t.Errorf("a series without a model: %s", line)
		}
	}
	for name, n := range types {
		if n != 1 {
			t.Errorf("family %s is there %d times", name, n)
		}
	}
	for _, want := range []string{
		`vllm:num_requests_running{engine="0",model_name="a"} 0`, `vllm:num_requests_running{engine="0",model_name="b"} 0`,
		`http_requests_total{handler="/v1/completions",method="POST",model_name="a",status="2xx"} 1`,
		`vapp_plan_bytes{item="weights",model_name="b"} 5`,
	} {
		if !strings.Contains(string(text), want+"\n") {
			t.Errorf("there is no %s", want)
		}
	}
	if strings.Count(string(text), "\ngo_goroutines ") != 1 {
		t.Error("the series of the process are not there once")
	}
}
