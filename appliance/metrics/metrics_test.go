package metrics

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine"
	"vapp.dev/internal/goldentest"
)

func testConfig() Config {
	return Config{
		Model: "smollm2", MaxModelLen: 4096, Version: "v1.2.3",
		Cache: CacheConfig{BlockSize: 16, Pages: 2048, Dtype: "bfloat16", PrefixCaching: true, Bytes: 1 << 30},
	}
}

// body returns the text of GET /metrics.
func body(t testing.TB, m *Metrics) string {
	text, _ := scrape(t, m, "")
	return text
}

// scrape returns the body of GET /metrics.
func scrape(t testing.TB, m *Metrics, accept string) (string, http.Header) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("GET /metrics: %d: %s", w.Code, w.Body)
	}
	return w.Body.String(), w.Header()
}

// ours removes the series of the Go runtime and the process, and values that depend on
// the Go version.
func ours(text string) string {
	var b strings.Builder
	for _, line := range strings.SplitAfter(text, "\n") {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "vapp_build_info{") {
			continue
		}
		b.WriteString(line)
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	goldentest.Compare(t, filepath.Join("testdata", name), got)
}

// TestIdle checks that every series exists with value 0 from the start.
func TestIdle(t *testing.T) {
	m := New(testConfig())
	m.InitReloads([]string{"live", "structural"}, []string{"applied", "reported"})
	text, h := scrape(t, m, "")
	golden(t, "idle.txt", ours(text))
	if ct := h.Get("Content-Type"); !strings.HasPrefix(ct, "text/plain; version=") || !strings.Contains(ct, "charset=utf-8") {
		t.Errorf("Content-Type %q", ct)
	}
	for _, want := range []string{"go_goroutines ", `vapp_build_info{goversion="go1.`, `version="v1.2.3"} 1`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
}

// played returns metrics after a prompt with a cache hit, a request with two choices, one
// aborted in the queue, a reload, and a ledger.
func played(c Config) *Metrics {
	m := New(c)
	m.WatchDrift(func() map[string]bool { return map[string]bool{"rss": true, "keys": false} }, func() int64 { return 2 })
	play(m, m.Hooks(m.cfg))
	m.Watch(func() engine.Stats {
		return engine.Stats{Running: 2, Waiting: 3, Deferred: 1, KVPages: 2048, KVUsed: 0.25}
	})
	m.SetPlan("weights", 1<<27)
	m.SetActual("weights", 1<<27)
	m.SetPlannedProcess(1 << 28)
	return m
}

// play reports the steps, requests and the reload of played.
func play(m *Metrics, h engine.Hooks) {
	t0 := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	h.Step(engine.StepStats{
		PromptTokens: 84, CacheQueries: 100, CacheHits: 16, GenerationTokens: 3,
		FirstTokens: []time.Duration{30 * time.Millisecond, 30 * time.Millisecond, 700 * time.Millisecond},
	})
	h.Step(engine.StepStats{GenerationTokens: 2, Preempted: 1, BetweenTokens: []time.Duration{20 * time.Millisecond, 2 * time.Second}})
	one := engine.RequestStats{
		ID: "a", Finish: engine.FinishStop, PromptTokens: 40, CachedTokens: 16, GenerationTokens: 1, MaxTokens: 5, N: 1,
		Arrival: at(0), Queued: at(1), Scheduled: at(2), FirstToken: at(702), LastToken: at(702), Finished: at(703),
	}
	h.Finished(one)
	for choice, tokens := range []int{7, 3} {
		h.Finished(engine.RequestStats{
			ID: "b", Finish: engine.FinishLength, PromptTokens: 60, GenerationTokens: tokens, MaxTokens: 7, N: 2, Choice: choice,
			Arrival: at(0), Queued: at(0), Scheduled: at(400), FirstToken: at(430), LastToken: at(2430), Finished: at(2431),
		})
	}
	h.Finished(engine.RequestStats{ID: "c", Finish: engine.FinishAbort, PromptTokens: 9, MaxTokens: 9, N: 1, Arrival: at(0), Queued: at(0), Finished: at(12000)})
	m.CountReload("live", "applied", at(500))
}

// TestPlayed checks every value of played against the golden, which has the lines that are not in that of TestIdle.
func TestPlayed(t *testing.T) {
	idle, err := os.ReadFile(filepath.Join("testdata", "idle.txt"))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := scrape(t, played(testConfig()), "")
	before, other := strings.SplitAfter(string(idle), "\n"), ""
	for _, line := range strings.SplitAfter(ours(text), "\n") {
		if !slices.Contains(before, line) {
			other += line
		}
	}
	golden(t, "played.txt", other)
}

// TestStale checks that the age of a difference grows, and is 0 without one.
func TestStale(t *testing.T) {
	m := New(testConfig())
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m.vapp.stale.now = func() time.Time { return at.Add(90 * time.Second) }
	m.SetStale(PartKeys, at)
	m.SetStale(PartCertificate, at)
	m.SetStale(PartCertificate, time.Time{})
	m.CountReadFailure(PartKeys)
	text, _ := scrape(t, m, "")
	for _, want := range []string{
		`vapp_profile_stale_seconds{part="keys"} 90`, `vapp_profile_stale_seconds{part="certificate"} 0`, `vapp_profile_stale_seconds{part="profile"} 0`,
		`vapp_profile_read_failures_total{part="keys"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}

// TestSpeculation checks that the series of speculative decoding exist only with draft
// tokens.
func TestSpeculation(t *testing.T) {
	c := testConfig()
	if text, _ := scrape(t, New(c), ""); strings.Contains(text, "spec_decode") {
		t.Error("series of proposals where none are made")
	}
	c.Drafts = 3
	m := New(c)
	m.Hooks(m.cfg).Step(engine.StepStats{Drafts: 2, DraftTokens: 5, AcceptedTokens: 3, AcceptedPerPosition: []int{2, 1, 0}})
	m.Hooks(m.cfg).Step(engine.StepStats{Drafts: 1, DraftTokens: 1, AcceptedTokens: 1, AcceptedPerPosition: []int{1, 0, 0}})
	text, _ := scrape(t, m, "")
	const labels = `{engine="0",model_name="smollm2"`
	for _, want := range []string{
		"vllm:spec_decode_num_drafts_total" + labels + "} 3", "vllm:spec_decode_num_draft_tokens_total" + labels + "} 6",
		"vllm:spec_decode_num_accepted_tokens_total" + labels + "} 4",
		"vllm:spec_decode_num_accepted_tokens_per_pos_total" + labels + `,position="0"} 3`,
		"vllm:spec_decode_num_accepted_tokens_per_pos_total" + labels + `,position="1"} 1`,
		"vllm:spec_decode_num_accepted_tokens_per_pos_total" + labels + `,position="2"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}

func TestCompat(t *testing.T) {
	c := testConfig()
	plain, _ := scrape(t, played(c), "")
	c.Compat = true
	text, _ := scrape(t, played(c), "")
	had := map[string]bool{}
	for _, line := range strings.Split(ours(plain), "\n") {
		had[line] = true
	}
	var added []string
	for _, line := range strings.Split(ours(text), "\n") {
		if !had[line] {
			added = append(added, line)
		}
	}
	golden(t, "compat.txt", strings.Join(added, "\n")+"\n")
}

// TestSwap checks that the series of swap space exist only with swap space, and under
// vLLM's old names only with Compat.
func TestSwap(t *testing.T) {
	c := testConfig()
	plain, _ := scrape(t, played(c), "")
	if strings.Contains(ours(plain), "vapp_swap") {
		t.Error("series of swap space without any")
	}
	c.Cache.SwapBytes, c.Cache.SwapPages, c.Compat = 4<<30, 1234, true
	m := played(c)
	m.Hooks(m.cfg).Step(engine.StepStats{Preempted: 3, SwappedOut: 2, SwappedIn: 1})
	m.Watch(func() engine.Stats { return engine.Stats{Waiting: 2, Swapped: 1, SwapUsed: 0.5} })
	text, _ := scrape(t, m, "")
	var got []string
	for _, line := range strings.Split(ours(text), "\n") {
		if strings.Contains(line, "swap_") || strings.Contains(line, "swapped{") || strings.Contains(line, "cpu_cache") {
			got = append(got, line)
		}
	}
	golden(t, "swap.txt", strings.Join(got, "\n")+"\n")
}

func TestNoPrefixCache(t *testing.T) {
	c := testConfig()
	c.Cache.PrefixCaching = false
	m := New(c)
	m.Hooks(m.cfg).Step(engine.StepStats{PromptTokens: 10, CacheQueries: 10})
	text, _ := scrape(t, m, "")
	for _, want := range []string{"vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"smollm2\"} 0\n", "vllm:prompt_tokens_total{engine=\"0\",model_name=\"smollm2\"} 10\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
}

func TestOpenMetrics(t *testing.T) {
	text, h := scrape(t, played(testConfig()), "application/openmetrics-text; version=1.0.0")
	if ct := h.Get("Content-Type"); !strings.HasPrefix(ct, "application/openmetrics-text") {
		t.Errorf("Content-Type %q", ct)
	}
	if !strings.HasSuffix(text, "# EOF\n") {
		t.Errorf("no end: %q", text[max(0, len(text)-40):])
	}
	for _, want := range []string{
		"# TYPE vllm:generation_tokens counter\n",
		`vllm:generation_tokens_total{engine="0",model_name="smollm2"} 5.0` + "\n",
		`le="1.0"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
}

// TestHostileName checks that a model's name cannot inject lines or bounds.
func TestHostileName(t *testing.T) {
	c := testConfig()
	c.Model = "x\",le=\"7\n} 1\nvllm:forged 1\n"
	text, _ := scrape(t, New(c), "")
	if strings.Contains(text, "\nvllm:forged") {
		t.Error("the name forged a line")
	}
	want := `vllm:iteration_tokens_total_bucket{engine="0",model_name="x\",le=\"7\n} 1\nvllm:forged 1\n",le="8.0"} 0`
	if !strings.Contains(text, want) {
		t.Errorf("no %s", want)
	}
}

func TestLengthBuckets(t *testing.T) {
	for _, c := range []struct {
		max  int
		want string
	}{
		{0, "1"}, {1, "1"}, {4, "1 2"}, {5, "1 2 5"}, {4096, "1 2 5 10 20 50 100 200 500 1000 2000"},
		{8192, "1 2 5 10 20 50 100 200 500 1000 2000 5000"},
	} {
		var got []string
		for _, b := range lengthBuckets(c.max) {
			got = append(got, strconv.FormatFloat(b, 'f', -1, 64))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%d: %s, want %s", c.max, strings.Join(got, " "), c.want)
		}
	}
}

func TestAppendLine(t *testing.T) {
	for in, want := range map[string]string{
		`a_bucket{le="1"} 3`:                `a_bucket{le="1.0"} 3`,
		`a_bucket{x="y",le="0.001"} 3`:      `a_bucket{x="y",le="0.001"} 3`,
		`a_bucket{x="y",le="1e+06"} 3`:      `a_bucket{x="y",le="1000000.0"} 3`,
		`a_bucket{x="y",le="+Inf"} 3`:       `a_bucket{x="y",le="+Inf"} 3`,
		`a{file="1"} 3`:                     `a{file="1"} 3`,
		`# HELP a what le="1" means`:        `# HELP a what le="1" means`,
		`# HELP a is {le="1"}`:              `# HELP a is {le="1"}`,
		`a_bucket{x="{le=\"1\"",le="2"} 3`:  `a_bucket{x="{le=\"1\"",le="2.0"} 3`,
		`a 3`:                               `a 3`,
		``:                                  ``,
		`a_bucket{le="1`:                    `a_bucket{le="1`,
		`a_bucket{x="y",le="16384"} 3 # {}`: `a_bucket{x="y",le="16384.0"} 3 # {}`,
	} {
		if got := string(appendLine(nil, []byte(in))); got != want {
			t.Errorf("%s:\n got %s\nwant %s", in, got, want)
		}
	}
}

func TestSplitWrites(t *testing.T) {
	w := httptest.NewRecorder()
	f := &floatBounds{ResponseWriter: w}
	f.Header().Set("Content-Type", "text/plain; version=0.0.4")
	for _, part := range []string{"a_bucket{l", `e="1"} `, "2\nb 1\nc", "_bucket{le=\"2\"} 5"} {
		if n, err := io.WriteString(f, part); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	f.end()
	if got, want := w.Body.String(), "a_bucket{le=\"1.0\"} 2\nb 1\nc_bucket{le=\"2.0\"} 5"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPooled checks that the time of a pooling request counts as prefill.
func TestPooled(t *testing.T) {
	m := New(testConfig())
	h, at := m.Hooks(m.cfg), func(ms int) time.Time { return time.UnixMilli(1_700_000_000_000 + int64(ms)) }
	h.Finished(engine.RequestStats{
		ID: "a", Finish: engine.FinishStop, PromptTokens: 40, N: 1, Pooled: true,
		Arrival: at(0), Queued: at(0), Scheduled: at(100), Finished: at(350),
	})
	text, _ := scrape(t, m, "")
	for _, name := range []string{"vllm:request_prefill_time_seconds", "vllm:request_inference_time_seconds"} {
		if !strings.Contains(text, name+`_sum{engine="0",model_name="`) || !strings.Contains(text, "} 0.25\n") {
			t.Errorf("%s is not 0.25", name)
		}
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "vllm:time_to_first_token_seconds_count") && !strings.HasSuffix(line, " 0") {
			t.Error(line)
		}
		if strings.HasPrefix(line, "vllm:request_prefill_time_seconds_count") && !strings.HasSuffix(line, " 1") {
			t.Error(line)
		}
	}
}

// TestImageHits: an image counts as found unless it was encoded for the prompt that computes it, in whatever
// step.
func TestImageHits(t *testing.T) {
	m := New(testConfig())
	hooks := m.Hooks(m.cfg)
	for _, s := range []engine.StepStats{{EncodedItems: 2}, {Items: 1}, {Items: 1, EncodedItems: 1}, {Items: 3}} {
		hooks.Step(s)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{`vllm:mm_cache_queries_total{engine="0",model_name="smollm2"} 5`, `vllm:mm_cache_hits_total{engine="0",model_name="smollm2"} 2`} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}
