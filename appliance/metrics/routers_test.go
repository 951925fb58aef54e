package metrics

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// routerReads are the series and labels that routers read, from their sources: the endpoint picker of the Gateway API
// Inference Extension v1.5.0 (pkg/epp/server/options.go, pkg/epp/framework/plugins/datalayer/extractor/metrics), and
// src/vllm_router/stats/engine_stats.py of vLLM's production stack at a6c01db0. numbers are labels that must be integers.
var routerReads = []struct {
	router, name    string
	labels, numbers []string
}{
	{"endpoint picker", "vllm:num_requests_waiting", nil, nil},
	{"endpoint picker", "vllm:num_requests_running", nil, nil},
	{"endpoint picker", "vllm:kv_cache_usage_perc", nil, nil},
	{"endpoint picker", "vllm:lora_requests_info", []string{"running_lora_adapters", "waiting_lora_adapters"}, []string{"max_lora"}},
	{"endpoint picker", "vllm:cache_config_info", nil, []string{"block_size", "num_gpu_blocks"}},
	{"production stack", "vllm:num_requests_running", nil, nil},
	{"production stack", "vllm:num_requests_waiting", nil, nil},
	{"production stack", "vllm:gpu_prefix_cache_hits_total", nil, nil},
	{"production stack", "vllm:gpu_prefix_cache_queries_total", nil, nil},
	{"production stack", "vllm:gpu_cache_usage_perc", nil, nil},
}

// TestRouters: one series for each name that a router reads, with its labels. The production stack also reads
// vllm:gpu_prefix_cache_hit_rate, which vLLM's engine V1 does not export either; it counts as 0.
func TestRouters(t *testing.T) {
	c := testConfig()
	c.Compat = true
	m := played(c)
	m.WatchAdapters(func() AdapterUse { return AdapterUse{Slots: 2, Running: []string{"a"}} }, time.Now)
	text := body(t, m)
	for _, r := range routerReads {
		var lines []string
		for line := range strings.Lines(text) {
			if rest, ok := strings.CutPrefix(line, r.name); ok && (rest[0] == '{' || rest[0] == ' ') {
				lines = append(lines, line)
			}
		}
		if len(lines) != 1 {
			t.Errorf("%s: %s has %d series, want 1", r.router, r.name, len(lines))
			continue
		}
		for _, l := range append(r.labels, r.numbers...) {
			if !regexp.MustCompile(`[{,]` + l + `="`).MatchString(lines[0]) {
				t.Errorf("%s: %s lacks the label %s: %s", r.router, r.name, l, lines[0])
			}
		}
		for _, l := range r.numbers {
			if v := regexp.MustCompile(`[{,]` + l + `="([^"]*)"`).FindStringSubmatch(lines[0]); v != nil {
				if _, err := strconv.Atoi(v[1]); err != nil {
					t.Errorf("%s: label %s of %s: %v", r.router, l, r.name, err)
				}
			}
		}
	}
}
