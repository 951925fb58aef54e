package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// versioned is a metric that reports whether it has changed, so that the encoder need not read and write it anew.
type versioned interface {
	prometheus.Metric
	// now returns a number that is another one after each change. Between a change and that, a reader may see either value.
	now() uint64
}

// version counts changes; each is counted after it is made.
type version struct{ changes atomic.Uint64 }

func (v *version) now() uint64 { return v.changes.Load() }

// counter is a versioned counter.
type counter struct {
	prometheus.Counter
	version
}

// Inc implements prometheus.Counter.
func (c *counter) Inc() { c.Add(1) }

// Add implements prometheus.Counter.
func (c *counter) Add(n float64) {
	c.Counter.Add(n)
	c.changes.Add(1)
}

// histogram is a versioned histogram.
type histogram struct {
	prometheus.Histogram
	version
}

// Observe implements prometheus.Histogram.
func (h *histogram) Observe(v float64) {
	h.Histogram.Observe(v)
	h.changes.Add(1)
}

// ObserveWithExemplar implements prometheus.ExemplarObserver.
func (h *histogram) ObserveWithExemplar(v float64, labels prometheus.Labels) {
	h.Histogram.(prometheus.ExemplarObserver).ObserveWithExemplar(v, labels)
	h.changes.Add(1)
}

// summary is a versioned summary.
type summary struct {
	prometheus.Summary
	version
}

// Observe implements prometheus.Summary.
func (s *summary) Observe(v float64) {
	s.Summary.Observe(v)
	s.changes.Add(1)
}

// fixed is a metric that never changes.
type fixed struct{ prometheus.Metric }

func (fixed) now() uint64 { return 0 }

// values are metrics whose values are asked for at each scrape. One that has not changed is the same metric as before.
type values struct {
	mu   sync.Mutex
	last map[valueOf]value
}

type valueOf struct {
	desc   *prometheus.Desc
	labels string
}

type value struct {
	is     float64
	metric fixed
}

// of returns the metric of a value.
func (k *values) of(d *prometheus.Desc, kind prometheus.ValueType, is float64, labels ...string) prometheus.Metric {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := valueOf{d, strings.Join(labels, "\x00")}
	if was, known := k.last[key]; known && was.is == is {
		return was.metric
	}
	if k.last == nil {
		k.last = map[valueOf]value{}
	}
	v := value{is, fixed{prometheus.MustNewConstMetric(d, kind, is, labels...)}}
	k.last[key] = v
	return v.metric
}

// vec is versioned metrics that differ in the values of their labels.
type vec[M versioned] struct {
	prometheus.Collector // Describe
	create               func(values ...string) M

	mu       sync.Mutex
	children map[string]M // by the values
	sorted   []M          // by the values
}

func newVec[M versioned](of prometheus.Collector, create func(values ...string) M) *vec[M] {
	return &vec[M]{Collector: of, create: create, children: map[string]M{}}
}

// WithLabelValues returns the metric with these values. It panics if there are more or fewer than labels.
func (v *vec[M]) WithLabelValues(values ...string) M {
	key := strings.Join(values, "\x00")
	v.mu.Lock()
	defer v.mu.Unlock()
	m, known := v.children[key]
	if !known {
		m = v.create(values...)
		v.children[key] = m
		v.sorted = v.sorted[:0]
		for _, key := range slices.Sorted(maps.Keys(v.children)) {
			v.sorted = append(v.sorted, v.children[key])
		}
	}
	return m
}

// Collect implements prometheus.Collector.
func (v *vec[M]) Collect(out chan<- prometheus.Metric) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range v.sorted {
		out <- m
	}
}
