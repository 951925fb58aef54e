//go:build clients

package clients

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// families lists vLLM's metrics that gateways, autoscalers and dashboards use, with their
// types.
var families = map[dto.MetricType][]string{
	dto.MetricType_GAUGE: {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:cache_config_info"},
	dto.MetricType_COUNTER: {
		"vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total", "vllm:prefix_cache_queries_total",
		"vllm:prefix_cache_hits_total", "vllm:num_preemptions_total", "vllm:prompt_tokens_by_source_total", "vllm:prompt_tokens_cached_total",
		"http_requests_total",
	},
	dto.MetricType_HISTOGRAM: {
		"vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds", "vllm:request_time_per_output_token_seconds",
		"vllm:e2e_request_latency_seconds", "vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds",
		"vllm:request_decode_time_seconds", "vllm:request_inference_time_seconds", "vllm:request_prompt_tokens",
		"vllm:request_generation_tokens", "vllm:request_max_num_generation_tokens", "vllm:request_params_n",
		"vllm:request_params_max_tokens", "vllm:request_prefill_kv_computed_tokens", "vllm:iteration_tokens_total",
		"http_request_duration_seconds", "http_request_duration_highr_seconds",
	},
}

// page is one scrape: series by name and labels.
type page map[string]float64

// scrape reads /metrics as Prometheus does. It fails on text that Prometheus or readers of
// vLLM's metrics cannot parse.
func scrape(t *testing.T, url string) (page, map[string]*dto.MetricFamily) {
	t.Helper()
	r, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if kind := r.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/plain; version=") || !strings.Contains(kind, "charset=utf-8") {
		t.Errorf("Content-Type %s", kind)
	}
	p := expfmt.NewTextParser(model.UTF8Validation)
	found, err := p.TextToMetricFamilies(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := page{}
	for name, f := range found {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			if strings.HasPrefix(name, "vllm:") && (labels["engine"] != "0" || name != "vllm:cache_config_info" && labels["model_name"] != modelName) {
				t.Errorf("%s has the labels %v", name, labels)
			}
			out.add(t, f, m, name+fmt.Sprint(labels))
		}
	}
	return out, found
}

// add adds the series of a metric, and checks that buckets are cumulative.
func (p page) add(t *testing.T, f *dto.MetricFamily, m *dto.Metric, key string) {
	t.Helper()
	switch f.GetType() {
	case dto.MetricType_COUNTER:
		p["counter "+key] = m.Counter.GetValue()
	case dto.MetricType_GAUGE:
		p["gauge "+key] = m.Gauge.GetValue()
	case dto.MetricType_HISTOGRAM:
		h, last := m.Histogram, uint64(0)
		p["counter "+key+" count"], p["counter "+key+" sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
		for _, b := range h.Bucket {
			p[fmt.Sprintf("counter %s le=%v", key, b.GetUpperBound())] = float64(b.GetCumulativeCount())
			if b.GetCumulativeCount() < last {
				t.Errorf("%s: bucket %v holds fewer than the one before", key, b.GetUpperBound())
			}
			last = b.GetCumulativeCount()
		}
		if end := h.Bucket[len(h.Bucket)-1]; !math.IsInf(end.GetUpperBound(), 1) || end.GetCumulativeCount() != h.GetSampleCount() {
			t.Errorf("%s: the last bucket is %v", key, end)
		}
	}
}

// of returns the sum of the series of a name that contain all parts.
func (p page) of(name string, parts ...string) float64 {
	sum := 0.0
	for key, v := range p {
		_, rest, _ := strings.Cut(key, " ")
		if strings.HasPrefix(rest, name+"map[") && !slices.ContainsFunc(parts, func(s string) bool { return !strings.Contains(rest, s) }) {
			sum += v
		}
	}
	return sum
}

// quiet waits until no request runs.
func quiet(t *testing.T, url string) page {
	t.Helper()
	for at := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if p, _ := scrape(t, url); p.of("vllm:num_requests_running") == 0 && p.of("vllm:num_requests_waiting") == 0 {
			return p
		}
		if time.Since(at) > time.Minute {
			t.Fatal("never quiet")
		}
	}
}

// TestGateway scrapes as gateways and autoscalers do. It checks that every name exists with
// its type, that counters only grow, and that the values match the requests sent.
func TestGateway(t *testing.T) {
	before := quiet(t, base)
	_, found := scrape(t, base)
	for kind, names := range families {
		for _, name := range names {
			if f := found[name]; f == nil || f.GetType() != kind || len(f.Metric) == 0 {
				t.Errorf("%s is no %v: %v", name, kind, f)
			}
		}
	}
	for _, label := range found["vllm:cache_config_info"].Metric[0].Label {
		if n, err := strconv.Atoi(label.GetValue()); slices.Contains([]string{"block_size", "num_gpu_blocks"}, label.GetName()) && (err != nil || n <= 0) {
			t.Errorf("cache_config_info: %v", label)
		}
	}
	for _, why := range []string{"stop", "length", "abort", "error"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(before)), func(k string) bool { return strings.Contains(k, "finished_reason:"+why) }) {
			t.Errorf("no series for finished_reason %s", why)
		}
	}

	var prompt, reply int64
	add := func(u openai.CompletionUsage) { prompt, reply = prompt+u.PromptTokens, reply+u.CompletionTokens }
	add(chat(t, ask(paris)).Usage)
	for range 3 {
		p := ask(moon)
		p.MaxTokens = openai.Int(5)
		add(chat(t, p).Usage)
	}
	bad := ask("x")
	bad.TopP = openai.Float(2)
	c := client()
	_, err := c.Chat.Completions.New(context.Background(), bad)
	refused[*openai.Error](t, err)

	now := quiet(t, base)
	for key, v := range before {
		if after, is := now[key]; strings.HasPrefix(key, "counter ") && (!is || after < v) {
			t.Errorf("%s fell from %v to %v", key, v, after)
		}
	}
	for _, x := range []struct {
		name  string
		parts []string
		want  float64
	}{
		{"vllm:prompt_tokens_total", nil, float64(prompt)},
		{"vllm:generation_tokens_total", nil, float64(reply)},
		{"vllm:prompt_tokens_by_source_total", nil, float64(prompt)},
		{"vllm:request_success_total", nil, 4},
		{"vllm:request_success_total", []string{"finished_reason:stop"}, 1},
		{"vllm:request_success_total", []string{"finished_reason:length"}, 3},
		{"vllm:request_prompt_tokens", []string{"] sum"}, float64(prompt)},
		{"vllm:request_generation_tokens", []string{"] sum"}, float64(reply)},
		{"vllm:request_params_max_tokens", []string{"] sum"}, 40 + 3*5},
		{"vllm:request_params_n", []string{"] count"}, 4},
		{"vllm:time_to_first_token_seconds", []string{"] count"}, 4},
		{"vllm:e2e_request_latency_seconds", []string{"] count"}, 4},
		{"vllm:inter_token_latency_seconds", []string{"] count"}, float64(reply) - 4},
		{"http_requests_total", []string{"handler:/v1/chat/completions", "status:2xx"}, 4},
		{"http_requests_total", []string{"handler:/v1/chat/completions", "status:4xx"}, 1},
	} {
		if got := now.of(x.name, x.parts...) - before.of(x.name, x.parts...); math.Abs(got-x.want) > 1e-6 {
			t.Errorf("%s %v grew by %v, want %v", x.name, x.parts, got, x.want)
		}
	}
}

// TestGauges checks that the gauges show a running request and its KV cache, and are 0 after
// its client has disconnected.
func TestGauges(t *testing.T) {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	quiet(t, base)
	p := ask(endless)
	p.MaxTokens = openai.Int(3000)
	p.SetExtraFields(map[string]any{"ignore_eos": true})
	c := client()
	for range 3 {
		s := c.Chat.Completions.NewStreaming(ctx, p)
		defer s.Close()
		if !s.Next() || !s.Next() {
			t.Fatal(s.Err())
		}
	}
	now, _ := scrape(t, base)
	if n, kv := now.of("vllm:num_requests_running"), now.of("vllm:kv_cache_usage_perc"); n != 3 || kv <= 0 || kv > 1 {
		t.Errorf("3 streams: running %v, KV use %v", n, kv)
	}
	leave()
	if now = quiet(t, base); now.of("vllm:kv_cache_usage_perc") != 0 {
		t.Errorf("idle: KV use %v", now.of("vllm:kv_cache_usage_perc"))
	}
}
