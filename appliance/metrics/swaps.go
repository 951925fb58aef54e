package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// swapsSeries are about engines that take the place of others.
type swapsSeries struct {
	values
	swaps           *vec[*counter]
	seconds         *vec[*summary]
	gap             *vec[*histogram]
	aborted         prometheus.Counter
	waiting, waited *prometheus.Desc
	queue           atomic.Pointer[func() (waiting int, counts map[string]int)]
}

// Ways in which an engine takes the place of another one.
var ways = []string{"rebuild", "beside", "drain"}

// gapBuckets are bounds in seconds.
var gapBuckets = []float64{0.1, 0.5, 2, 10, 60}

func newSwapsSeries(r prometheus.Registerer) *swapsSeries {
	f := factory{Registerer: r}
	s := &swapsSeries{
		swaps:   f.counters("vapp_engine_swaps_total", "Engines that were to take the place of another one, by the way and whether they did; after failed the last good engine serves.", "way", "outcome"),
		seconds: f.summaries("vapp_engine_swap_seconds", "From the decision to replace an engine until the new one serves.", "way"),
		gap:     f.histograms("vapp_engine_gap_seconds", "Time without an engine that takes requests, for each replaced engine; requests wait meanwhile.", gapBuckets, "way"),
		aborted: f.counter("vapp_engine_swap_aborted_requests_total", "Requests of replaced engines that had not ended after serve.drainTimeout."),
		waiting: prometheus.NewDesc("vapp_requests_without_engine", "Requests that wait for an engine.", nil, nil),
		waited:  prometheus.NewDesc("vapp_requests_without_engine_total", "Requests that waited for an engine or could not: served by it, refused since reload.queue others waited, or gone.", []string{"outcome"}, nil),
	}
	for _, w := range ways {
		s.swaps.WithLabelValues(w, "applied")
		s.swaps.WithLabelValues(w, "failed")
		s.seconds.WithLabelValues(w)
		s.gap.WithLabelValues(w)
	}
	r.MustRegister(s)
	return s
}

// Describe implements prometheus.Collector.
func (s *swapsSeries) Describe(out chan<- *prometheus.Desc) {
	out <- s.waiting
	out <- s.waited
}

// Collect implements prometheus.Collector.
func (s *swapsSeries) Collect(out chan<- prometheus.Metric) {
	waiting, counts := 0, map[string]int{}
	if f := s.queue.Load(); f != nil {
		waiting, counts = (*f)()
	}
	out <- s.of(s.waiting, prometheus.GaugeValue, float64(waiting))
	for _, outcome := range []string{"served", "refused", "gone"} {
		out <- s.of(s.waited, prometheus.CounterValue, float64(counts[outcome]), outcome)
	}
}

// WatchQueue sets the source of the requests that wait for an engine: their number, and how many waited before, by
// outcome (served, refused, gone). It is called at each scrape.
func (m *Metrics) WatchQueue(queue func() (waiting int, counts map[string]int)) {
	m.vapp.swaps.queue.Store(&queue)
}

// CountSwap counts an engine that took, or could not take, the place of another one. gap is the time for which no
// engine took requests.
func (m *Metrics) CountSwap(way string, applied bool, took, gap time.Duration) {
	s, outcome := m.vapp.swaps, "applied"
	if !applied {
		outcome = "failed"
	}
	s.swaps.WithLabelValues(way, outcome).Inc()
	s.gap.WithLabelValues(way).Observe(seconds(gap))
	if applied {
		s.seconds.WithLabelValues(way).Observe(seconds(took))
	}
}

// CountAborted counts requests that were aborted with their engine.
func (m *Metrics) CountAborted(requests int) { m.vapp.swaps.aborted.Add(float64(requests)) }
