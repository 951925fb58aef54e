package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"vapp.dev/engine"
)

// swapSeries are the series of swap space, present if the profile has any. vLLM removed
// its names for them: Config.Compat adds these.
type swapSeries struct {
	values
	stats           func() engine.Stats
	swapped, usage  *prometheus.Desc
	out, back       prometheus.Counter
	reqsOld, useOld *prometheus.Desc // nil without Compat
}

// swapFor returns the series for an engine with that many bytes of swap space; nil for 0.
func (m *Metrics) swapFor(bytes int64) *swapSeries {
	if bytes == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.swap == nil {
		m.swap = newSwapSeries(m.labelled, m.snapshot, m.cfg.Compat)
	}
	return m.swap
}

func newSwapSeries(f factory, stats func() engine.Stats, old bool) *swapSeries {
	s := &swapSeries{
		stats:   stats,
		swapped: f.desc("vapp_num_requests_swapped", "Requests that wait with their KV pages in swap space."),
		usage:   f.desc("vapp_swap_usage_perc", "Used share of swap space, 0 to 1."),
		out:     f.counter("vapp_swap_out_total", "Preempted requests whose KV pages went to swap space."),
		back:    f.counter("vapp_swap_in_total", "Requests whose KV pages came back from swap space."),
	}
	if old {
		s.reqsOld = f.desc("vllm:num_requests_swapped", "Old name of vapp_num_requests_swapped.")
		s.useOld = f.desc("vllm:cpu_cache_usage_perc", "Old name of vapp_swap_usage_perc.")
	}
	f.MustRegister(s)
	return s
}

// step counts the swapped requests of a step. s may be nil.
func (s *swapSeries) step(r engine.StepStats) {
	if s != nil {
		add(s.out, r.SwappedOut)
		add(s.back, r.SwappedIn)
	}
}

// Describe implements prometheus.Collector.
func (s *swapSeries) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.swapped, s.usage, s.reqsOld, s.useOld} {
		if d != nil {
			out <- d
		}
	}
}

// Collect implements prometheus.Collector.
func (s *swapSeries) Collect(out chan<- prometheus.Metric) {
	v := s.stats()
	out <- s.of(s.swapped, prometheus.GaugeValue, float64(v.Swapped))
	out <- s.of(s.usage, prometheus.GaugeValue, v.SwapUsed)
	if s.reqsOld != nil {
		out <- s.of(s.reqsOld, prometheus.GaugeValue, float64(v.Swapped))
		out <- s.of(s.useOld, prometheus.GaugeValue, v.SwapUsed)
	}
}
