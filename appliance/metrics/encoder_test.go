package metrics

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vapp.dev/engine"
)

// still stops the clocks of a server's metrics.
func still(m *Metrics) *Metrics {
	at := time.Now()
	for _, c := range m.registry.collectors {
		if a, is := c.(*aged); is {
			a.now = func() time.Time { return at }
		}
	}
	m.vapp.stale.now = func() time.Time { return at }
	return m
}

// writes reports whether the encoder can write all of a server's metrics.
func writes(m *Metrics) error {
	e := newEncoder(m)
	_, text := e.encode(textFormat)
	_, open := e.encode(openFormat)
	return errors.Join(text, open)
}

// alike compares the encoder with promhttp, in each format.
func alike(t *testing.T, m *Metrics, h http.Handler, when string) {
	t.Helper()
	for _, accept := range []string{
		"", openMetrics, "application/openmetrics-text;version=0.0.1", "text/plain;version=0.0.4;q=0.5,*/*;q=0.1", "text/plain;version=1.0.0;escaping=allow-utf-8",
		"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.3",
	} {
		ask := func(h http.Handler) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		got, want := ask(h), ask(m.promHandler())
		if a, b := got.Header().Get("Content-Type"), want.Header().Get("Content-Type"); got.Code != want.Code || a != b {
			t.Errorf("%s, Accept %q: %d %s, promhttp %d %s", when, accept, got.Code, a, want.Code, b)
		}
		a, b := strings.Split(got.Body.String(), "\n"), strings.Split(want.Body.String(), "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("%s, Accept %q, line %d:\n%s\npromhttp:\n%s", when, accept, i+1, a[i], b[i])
			}
		}
		if len(a) != len(b) {
			t.Fatalf("%s, Accept %q: %d lines, promhttp %d", when, accept, len(a), len(b))
		}
	}
}

// TestEncoder compares what GET /metrics writes with promhttp, byte by byte, while series are added,
// change and go away: a scrape must not depend on those before it.
func TestEncoder(t *testing.T) {
	c := testConfig()
	c.Compat, c.Drafts, c.Cache.SwapBytes, c.Cache.SwapPages = true, 2, 1<<30, 64
	c.KVEvents, c.Traces = func() KVEvents { return KVEvents{Batches: 3} }, func() Traces { return Traces{Exported: 2} }
	c.TraceID = func(o engine.Observer) string { return string(o.(traced)) }
	m := still(New(c))
	h := m.Handler()
	alike(t, m, h, "at first")
	hooks := m.Hooks(m.cfg)
	play(m, hooks)
	m.WatchDrift(func() map[string]bool { return map[string]bool{"rss": true, "keys": false} }, func() int64 { return 2 })
	alike(t, m, h, "played")
	running, at := []string{"sql"}, time.Unix(1e9, 0)
	m.WatchAdapters(func() AdapterUse { return AdapterUse{Slots: 2, Running: running} }, func() time.Time { return at })
	alike(t, m, h, "adapters")
	running = []string{`a"b\c` + "\nd€"}
	alike(t, m, h, "other adapters")
	for i := range 40 {
		m.ObserveRequest(HTTPRequest{Method: methods[i%3], Handler: "/" + strings.Repeat("x", i%7), Status: 200 + 100*(i%4), Duration: time.Duration(i) * time.Second})
		if i%10 == 0 {
			alike(t, m, h, "requests")
		}
	}
	for _, d := range []time.Duration{time.Millisecond, time.Second, 24 * time.Hour} { // in the last bucket too
		hooks.Step(engine.StepStats{FirstTokens: []time.Duration{d}, FirstObservers: []engine.Observer{traced("0af7651916cd43dd8448eb211c80319c")}})
		alike(t, m, h, "exemplars")
	}
	odd := register(factory{Registerer: m.registry}, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "vapp_odd", Help: "A \\ \"help\"\nof two lines."}, []string{"b", "a"}))
	for i, v := range []float64{0, math.Copysign(0, -1), 1, -1, 1.5, 1e21, 1e-7, 123456789, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64} {
		odd.WithLabelValues(strings.Repeat("z", i%3), strings.Repeat("y", i)).Set(v)
	}
	register(factory{Registerer: m.registry}, prometheus.NewCounter(prometheus.CounterOpts{Name: "vapp_no_suffix", Help: "A counter."})).Add(2)
	alike(t, m, h, "odd numbers and texts")
	odd.Reset()
	alike(t, m, h, "series gone")
	if err := writes(m); err != nil {
		t.Errorf("promhttp has to write: %v", err)
	}
}

// broken is a collector of one metric that cannot be read.
type broken struct{ desc *prometheus.Desc }

func (b broken) Describe(out chan<- *prometheus.Desc) { out <- b.desc }

func (b broken) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.NewInvalidMetric(b.desc, errors.New("torn"))
}

// TestEncoderOthers: what the encoder does not write is answered by promhttp.
func TestEncoderOthers(t *testing.T) {
	untyped := prometheus.NewUntypedFunc(prometheus.UntypedOpts{Name: "vapp_untyped", Help: "x"}, func() float64 { return 1 })
	native := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "vapp_native", Help: "x", NativeHistogramBucketFactor: 1.1})
	native.Observe(3)
	for name, c := range map[string]prometheus.Collector{
		"untyped": untyped, "native": native, "broken": broken{prometheus.NewDesc("vapp_broken", "x", nil, nil)},
	} {
		m := still(New(testConfig()))
		if m.registry.MustRegister(c); writes(m) == nil {
			t.Errorf("%s: the encoder writes it", name)
		}
		alike(t, m, m.Handler(), name)
	}
	m := still(New(testConfig()))
	for query, accept := range map[string]string{"?name[]=vapp_build_info": "", "": "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"} {
		ask := func(h http.Handler) string {
			r := httptest.NewRequest(http.MethodGet, "/metrics"+query, nil)
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Header().Get("Content-Type") + w.Body.String()
		}
		if got, want := ask(m.Handler()), ask(m.promHandler()); got != want {
			t.Errorf("%s %s:\n%.300q\npromhttp:\n%.300q", query, accept, got, want)
		}
	}
}

// TestEncoderTogether scrapes from several goroutines while the engine runs.
func TestEncoderTogether(t *testing.T) {
	m := played(testConfig())
	h, hooks := m.Handler(), m.Hooks(m.cfg)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				if text := w.Body.String(); w.Code != 200 || !strings.Contains(text, "\nvapp_build_info{") || !strings.HasSuffix(text, "\n") {
					t.Errorf("%d: %.200q", w.Code, text)
				}
			}
		})
	}
	for range 200 {
		hooks.Step(engine.StepStats{GenerationTokens: 1, BetweenTokens: []time.Duration{time.Millisecond}})
	}
	all.Wait()
}

// TestEncoderForgets: labels that are gone take no memory.
func TestEncoderForgets(t *testing.T) {
	m := New(testConfig())
	name := ""
	m.WatchAdapters(func() AdapterUse { return AdapterUse{Slots: 1, Running: []string{name}} }, time.Now)
	e := newEncoder(m)
	sizes := func() (series, known int) {
		if _, err := e.encode(textFormat); err != nil {
			t.Fatal(err)
		}
		for _, f := range e.families {
			known += len(f.known)
		}
		for _, s := range e.sources {
			series += len(s.series)
		}
		return series, known
	}
	series, known := sizes()
	for i := range 50 {
		name = strings.Repeat("x", i)
		sizes()
	}
	if s, k := sizes(); s != series || k != known || s != k {
		t.Errorf("%d series and %d known ones, at first %d and %d", s, k, series, known)
	}
}

// TestReplacedModel: after Replace all series have the new model_name and go on counting, in the text of the encoder
// and in promhttp's.
func TestReplacedModel(t *testing.T) {
	m := New(Config{Model: "first", MaxModelLen: 128})
	m.Hooks(m.cfg).Step(engine.StepStats{PromptTokens: 3})
	e := newEncoder(m)
	if _, err := e.encode(textFormat); err != nil {
		t.Fatal(err)
	}
	m.Replace(Config{Model: "second", MaxModelLen: 256, Drafts: 2})
	m.Hooks(Config{Model: "second", Drafts: 2}).Step(engine.StepStats{PromptTokens: 4, Drafts: 1, DraftTokens: 2})
	b, err := e.encode(textFormat)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	m.promHandler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for name, text := range map[string]string{"encoder": string(b.text), "promhttp": w.Body.String()} {
		for _, line := range []string{`vllm:prompt_tokens_total{engine="0",model_name="second"} 7`, `vllm:spec_decode_num_drafts_total{engine="0",model_name="second"} 1`} {
			if !strings.Contains(text, line) {
				t.Errorf("%s: no %s", name, line)
			}
		}
		if strings.Contains(text, `"first"`) {
			t.Errorf("%s: the first name is still there", name)
		}
	}
}

// TestWatchSums: while two engines are open their requests add up, and counters never go back.
func TestWatchSums(t *testing.T) {
	m := New(Config{Model: "m"})
	old := m.Watch(func() engine.Stats { return engine.Stats{Running: 2, KVUsed: 0.9, Preemptions: 5} })
	m.Watch(func() engine.Stats { return engine.Stats{Running: 1, KVUsed: 0.1, Preemptions: 1} })
	if s := m.snapshot(); s.Running != 3 || s.KVUsed != 0.1 || s.Preemptions != 6 {
		t.Errorf("%+v", s)
	}
	old()
	old()
	if s := m.snapshot(); s.Running != 1 || s.Preemptions != 6 {
		t.Errorf("%+v", s)
	}
}

// TestEncoderSees: each change shows in the next scrape, though nothing else is asked or written again.
func TestEncoderSees(t *testing.T) {
	c := testConfig()
	c.Compat, c.Drafts, c.Cache.SwapBytes, c.Cache.SwapPages = true, 1, 1<<30, 64
	var events KVEvents
	var spans Traces
	c.KVEvents, c.Traces = func() KVEvents { return events }, func() Traces { return spans }
	m := still(New(c))
	h, hooks := m.Handler(), m.Hooks(m.cfg)
	var stats engine.Stats
	m.Watch(func() engine.Stats { return stats })
	lost, drift, waiting := int64(0), false, 0
	m.WatchDrift(func() map[string]bool { return map[string]bool{"rss": drift, "keys": false} }, func() int64 { return lost })
	m.WatchQueue(func() (int, map[string]int) { return waiting, map[string]int{"gone": waiting} })
	alike(t, m, h, "at first")
	var text string
	for _, change := range []struct {
		name string
		make func()
	}{
		{"a step", func() { hooks.Step(engine.StepStats{PromptTokens: 3, Drafts: 1, DraftTokens: 1}) }},
		{"longer numbers", func() { hooks.Step(engine.StepStats{PromptTokens: 1e6, FirstTokens: []time.Duration{time.Second / 3}}) }},
		{"a request", func() {
			hooks.Finished(engine.RequestStats{ID: "a", N: 1, Finish: engine.FinishLength, PromptTokens: 5})
		}},
		{"stats", func() {
			stats = engine.Stats{Running: 2, Waiting: 1, Deferred: 1, KVUsed: 0.25, Swapped: 1, SwapUsed: 0.5}
		}},
		{"stats back", func() { stats = engine.Stats{} }},
		{"sleep", func() { m.SetSleep(2) }},
		{"a new item", func() { m.SetPlan("kv", 7) }},
		{"the item's value", func() { m.SetPlan("kv", 8) }},
		{"another new item", func() { m.SetActual("kv", 8) }},
		{"no items", m.ResetLedger},
		{"an item again", func() { m.SetPlan("kv", 9) }},
		{"the process", func() { m.SetPlannedProcess(5) }},
		{"a target", func() { m.SetITLTarget(time.Second) }},
		{"a reload", func() { m.CountReload("live", "applied", time.Unix(9, 0)) }},
		{"a failure", func() { m.CountReadFailure(PartKeys) }},
		{"staleness", func() { m.SetStale(PartKeys, m.vapp.stale.now().Add(-time.Minute)) }},
		{"drift", func() { drift = true }},
		{"a lost entry", func() { lost++ }},
		{"the queue", func() { waiting = 3 }},
		{"a swap", func() { m.CountSwap("drain", true, time.Second, time.Second) }},
		{"aborted", func() { m.CountAborted(2) }},
		{"KV events", func() { events.Lost = 4 }},
		{"spans", func() { spans.Queue = 4 }},
		{"HTTP", func() { m.ObserveRequest(HTTPRequest{Method: "GET", Handler: "/v1/models", Status: 200}) }},
		{"HTTP again", func() { m.ObserveRequest(HTTPRequest{Method: "GET", Handler: "/v1/models", Status: 200, In: 1}) }},
		{"the cache", func() { n := c; n.Cache.Pages++; m.Replace(n) }},
		{"the model", func() { n := c; n.Model = "other"; m.Replace(n) }},
		{"a step of it", func() { hooks.Step(engine.StepStats{GenerationTokens: 3}) }},
		{"stats of it", func() { stats.Running = 7 }},
	} {
		change.make()
		alike(t, m, h, change.name)
		now := body(t, m)
		if now == text {
			t.Errorf("%s: nothing changed", change.name)
		}
		text = now
	}
}

// TestEncoderReplies: a reply does not change while it is in use, and one that is not in use is used again, as it is if
// nothing has changed.
func TestEncoderReplies(t *testing.T) {
	m := still(New(testConfig()))
	m.SetPlan("kv", 1)
	e := newEncoder(m)
	get := func() *reply {
		t.Helper()
		r, err := e.encode(textFormat)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := get()
	text := string(first.text)
	if get() != first {
		t.Error("nothing changed, and the reply is another one")
	}
	e.release(first)
	for _, change := range []struct {
		item string
		n    int64
	}{{"kv", 2}, {"kv", 1e9}, {"new", 1}} { // in place, longer, a new series
		m.SetPlan(change.item, change.n)
		if r := get(); r == first || string(r.text) == text {
			t.Errorf("%v: a reply in use was written", change)
		} else {
			e.release(r)
		}
		if string(first.text) != text {
			t.Fatalf("%v: a reply changed while it was in use", change)
		}
	}
	e.release(first)
	held := get()
	text = string(held.text)
	m.SetPlan("newer", 1)
	if e.release(get()); string(held.text) != text {
		t.Fatal("a reply changed while it was in use, when a series came")
	}
	e.release(held)
	second := get()
	e.release(second)
	asked := testing.AllocsPerRun(20, func() { e.release(get()) })
	m.SetPlan("kv", 2e9)
	if r := get(); r != second || !strings.Contains(string(r.text), "vapp_plan_bytes{item=\"kv\"} 2e+09\n") {
		t.Error("the free reply is not used again")
	}
	if asked > 8 { // the maps and the arguments of those that are asked each time
		t.Errorf("a scrape without a change makes %g allocations", asked)
	}
}
