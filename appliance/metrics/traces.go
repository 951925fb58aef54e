package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"vapp.dev/engine"
)

// Traces are the spans since the start: those that the collector took, those dropped because too
// many waited, and those whose export failed.
type Traces struct{ Exported, Queue, Failed uint64 }

// newTraces returns the series of traces.
func newTraces(figures func() Traces) prometheus.Collector {
	return &traceSeries{
		figures:  figures,
		exported: prometheus.NewDesc("vapp_trace_spans_exported_total", "Spans that the collector took.", nil, nil),
		dropped:  prometheus.NewDesc("vapp_trace_spans_dropped_total", "Spans that were dropped, by reason: queue, too many waited for the collector; export, it was not reached or refused them.", []string{"reason"}, nil),
	}
}

type traceSeries struct {
	values
	figures           func() Traces
	exported, dropped *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (t *traceSeries) Describe(out chan<- *prometheus.Desc) {
	out <- t.exported
	out <- t.dropped
}

// Collect implements prometheus.Collector.
func (t *traceSeries) Collect(out chan<- prometheus.Metric) {
	f := t.figures()
	out <- t.of(t.exported, prometheus.CounterValue, float64(f.Exported))
	out <- t.of(t.dropped, prometheus.CounterValue, float64(f.Queue), "queue")
	out <- t.of(t.dropped, prometheus.CounterValue, float64(f.Failed), "export")
}

// observer observes times with the trace of their request as the exemplar.
type observer struct {
	traceID func(engine.Observer) string // nil: without exemplars
}

// observe adds a time in seconds to h.
func (o observer) observe(h prometheus.Histogram, v float64, of engine.Observer) {
	if of != nil && o.traceID != nil {
		if id := o.traceID(of); id != "" {
			h.(prometheus.ExemplarObserver).ObserveWithExemplar(v, prometheus.Labels{"trace_id": id})
			return
		}
	}
	h.Observe(v)
}
