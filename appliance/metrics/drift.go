package metrics

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// driftSeries are the kinds of drift and the lost entries of the audit log. Their values are asked for at
// each scrape.
type driftSeries struct {
	values
	drift, lost *prometheus.Desc
	source      atomic.Pointer[driftSource]
}

type driftSource struct {
	kinds func() map[string]bool
	lost  func() int64
}

func newDriftSeries() *driftSeries {
	return &driftSeries{
		drift: prometheus.NewDesc("vapp_drift", "1: what runs differs from what is declared or planned in this way; GET /admin/drift says how.", []string{"kind"}, nil),
		lost:  prometheus.NewDesc("vapp_audit_lost_total", "Entries that could not be written to the audit log.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (s *driftSeries) Describe(out chan<- *prometheus.Desc) {
	out <- s.drift
	out <- s.lost
}

// Collect implements prometheus.Collector.
func (s *driftSeries) Collect(out chan<- prometheus.Metric) {
	from := s.source.Load()
	if from == nil {
		return
	}
	kinds := from.kinds()
	for _, kind := range slices.Sorted(maps.Keys(kinds)) { // in the same order each time
		n := 0.0
		if kinds[kind] {
			n = 1
		}
		out <- s.of(s.drift, prometheus.GaugeValue, n, kind)
	}
	out <- s.of(s.lost, prometheus.CounterValue, float64(from.lost()))
}

// WatchDrift sets the source of the kinds of drift and of the number of lost audit entries. Both are called
// at each scrape and must be cheap; kinds must always return the same keys.
func (m *Metrics) WatchDrift(kinds func() map[string]bool, lost func() int64) {
	m.vapp.drift.source.Store(&driftSource{kinds, lost})
}
