// Package metrics exports engine.Stats, engine.Hooks, HTTP requests and the plan's ledger
// to Prometheus: the series of GET /metrics under vLLM's names, vapp's own series with the
// prefix vapp_, and the periodic statistics line in the log. It must not import the
// packages that it measures, except engine for its types, and must not block the engine's
// loop: its methods only add numbers. Start reading at New in this file and Hooks in
// hooks.go.
package metrics

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"vapp.dev/engine"
)

// Config describes a server before its engine is opened.
type Config struct {
	Model       string // label model_name: the first served name
	Engine      int    // label engine: the index of the replica
	MaxModelLen int    // tokens; the largest bucket of lengths
	Version     string // of vapp
	Compat      bool   // also export the names of older vLLM releases
	Drafts      int    // draft tokens per sequence and step; 0: no series of speculative decoding
	Cache       CacheConfig
	// Together is set where several models are in this process: then every series has the label
	// model_name, and those of the process itself are the first model's (First).
	Together, First bool
	// KVEvents returns the figures of KV events at each scrape; nil: there are none.
	KVEvents func() KVEvents
	// Traces returns the counts of spans at each scrape; nil: there are none.
	Traces func() Traces
	// TraceID returns the trace of a request's observer, for exemplars, "" if it has none; nil: no
	// exemplars.
	TraceID func(engine.Observer) string
}

// Metrics is a registry and its series. It is safe for concurrent use.
type Metrics struct {
	cfg      Config
	registry *registry
	own      prometheus.Registerer // of series that have no label model_name by themselves
	engines  engines
	model    atomic.Pointer[string] // label model_name, of the newest engine
	sleep    atomic.Int32           // level
	info     *cacheInfo
	engine   *engineSeries
	http     *httpSeries
	vapp     *vappSeries
	labelled factory // of the series with the labels model_name and engine

	mu       sync.Mutex // guards what follows: series that appear with the first engine that has them
	spec     *specSeries
	swap     *swapSeries
	loras    *adapterInfo
	interval interval

	generated atomic.Int64 // tokens
}

// Generated returns the number of tokens generated since the start.
func (m *Metrics) Generated() int64 { return m.generated.Load() }

// New returns a registry in which every series has the value 0.
func New(c Config) *Metrics {
	m := &Metrics{cfg: c, registry: &registry{Registry: prometheus.NewRegistry()}}
	m.own = m.registry
	if c.Together {
		m.own = prometheus.WrapRegistererWith(prometheus.Labels{modelLabel: c.Model}, m.registry)
	}
	if !c.Together || c.First {
		m.registry.MustRegister(
			newAged(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
			newAged(collectors.NewGoCollector()),
		)
	}
	labelled := factory{m.registry, prometheus.Labels{modelLabel: c.Model, "engine": strconv.Itoa(c.Engine)}}
	m.labelled = labelled
	m.model.Store(&c.Model)
	m.engine = newEngineSeries(labelled, c.MaxModelLen)
	m.engine.traced = observer{c.TraceID}
	gauges := newGauges(labelled, m.snapshot, &m.sleep)
	labelled.MustRegister(gauges)
	if c.Compat {
		labelled.MustRegister(m.oldNames(labelled, gauges)...)
	}
	m.specFor(c.Drafts)
	m.swapFor(c.Cache.SwapBytes)
	m.info = newCacheInfo(c)
	m.own.MustRegister(m.info)
	if c.KVEvents != nil {
		m.own.MustRegister(newKVEvents(c.KVEvents))
	}
	if c.Traces != nil {
		m.own.MustRegister(newTraces(c.Traces))
	}
	m.http = newHTTPSeries(m.own)
	m.vapp = newVappSeries(m.own)
	m.vapp.build.WithLabelValues(c.Version, runtime.Version()).Set(1)
	return m
}

// gauges collects its values from one snapshot of the engine, so that a scrape is
// consistent.
type gauges struct {
	values
	stats                   func() engine.Stats
	running, waiting, usage *prometheus.Desc
	byReason, sleep         *prometheus.Desc
	level                   *atomic.Int32
}

func newGauges(f factory, stats func() engine.Stats, level *atomic.Int32) *gauges {
	return &gauges{
		level:   level,
		stats:   stats,
		running: f.desc("vllm:num_requests_running", "Requests in the running batch."),
		waiting: f.desc("vllm:num_requests_waiting", "Requests that wait for their first step."),
		usage:   f.desc("vllm:kv_cache_usage_perc", "Used share of the KV pages, 0 to 1."),
		byReason: f.desc("vllm:num_requests_waiting_by_reason",
			"Requests that wait, by what for: capacity, for room in the batch or the KV cache; deferred, for a change of scheduler.policy.", "reason"),
		sleep: f.desc("vllm:engine_sleep_state", "1 for the state of the engine: awake, its weights kept, or nothing kept.", "sleep_state"),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	out <- g.running
	out <- g.waiting
	out <- g.usage
	out <- g.byReason
	out <- g.sleep
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	s := g.stats()
	out <- g.of(g.running, prometheus.GaugeValue, float64(s.Running))
	out <- g.of(g.waiting, prometheus.GaugeValue, float64(s.Waiting))
	out <- g.of(g.usage, prometheus.GaugeValue, s.KVUsed)
	out <- g.of(g.byReason, prometheus.GaugeValue, float64(s.Waiting-s.Deferred), "capacity")
	out <- g.of(g.byReason, prometheus.GaugeValue, float64(s.Deferred), "deferred")
	level := int(g.level.Load())
	for i, state := range []string{"awake", "weights_offloaded", "discard_all"} {
		is := 0.0
		if i == level {
			is = 1
		}
		out <- g.of(g.sleep, prometheus.GaugeValue, is, state)
	}
}

// seconds returns a duration for a histogram. Negative durations count as 0.
func seconds(d time.Duration) float64 { return max(0, d.Seconds()) }
