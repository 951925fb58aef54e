package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// versioned is a metric or a collector that reports whether it has changed, so that the encoder need not read it anew.
type versioned interface {
	// version returns a number that is another one after each change, or unversioned. Between a change and that, a
	// reader may see either value.
	version() uint64
}

// unversioned is the version of what may have changed at any time.
const unversioned = 0

// changes counts changes; each is counted after it is made.
type changes struct {
	n  atomic.Uint64
	of *changes // of the vec that the metric is of, or of the registry; nil: of none
}

// versionedTogether is a versioned collector whose changes its registry can count too.
type versionedTogether interface {
	versioned
	countIn(of *changes)
	countedIn(of *changes) bool
}

// countIn sets where the changes are counted too. It is called before the first one.
func (c *changes) countIn(of *changes) { c.of = of }

// countedIn reports whether the changes are counted there too.
func (c *changes) countedIn(of *changes) bool { return c.of == of }

func (c *changes) version() uint64 { return 1 + c.n.Load() }

func (c *changes) count() {
	for ; c != nil; c = c.of {
		c.n.Add(1)
	}
}

// counter is a versioned counter.
type counter struct {
	prometheus.Counter
	changes
}

// Inc implements prometheus.Counter.
func (c *counter) Inc() { c.Add(1) }

// Add implements prometheus.Counter.
func (c *counter) Add(n float64) {
	if n == 0 {
		return
	}
	c.Counter.Add(n)
	c.count()
}

// metric is a prometheus.Metric and its collector. Embedded, it hides other methods, which would change it uncounted.
type metric interface {
	prometheus.Metric
	prometheus.Collector
}

// gauge is a versioned gauge.
type gauge struct {
	metric
	value prometheus.Gauge
	changes
}

// Set sets the value.
func (g *gauge) Set(v float64) {
	g.value.Set(v)
	g.count()
}

// histogram is a versioned histogram.
type histogram struct {
	prometheus.Histogram
	changes
}

// Observe implements prometheus.Histogram.
func (h *histogram) Observe(v float64) {
	h.Histogram.Observe(v)
	h.count()
}

// ObserveWithExemplar implements prometheus.ExemplarObserver.
func (h *histogram) ObserveWithExemplar(v float64, labels prometheus.Labels) {
	h.Histogram.(prometheus.ExemplarObserver).ObserveWithExemplar(v, labels)
	h.count()
}

// summary is a versioned summary.
type summary struct {
	prometheus.Summary
	changes
}

// Observe implements prometheus.Summary.
func (s *summary) Observe(v float64) {
	s.Summary.Observe(v)
	s.count()
}

// fixed is a metric that never changes.
type fixed struct{ prometheus.Metric }

func (*fixed) version() uint64 { return 1 }

// values are metrics whose values are asked for at each scrape. One that has not changed is the same metric as before.
type values struct {
	mu   sync.Mutex
	last map[valueOf]value
}

// valueOf has the values of up to two labels.
type valueOf struct {
	desc   *prometheus.Desc
	labels [2]string
}

type value struct {
	is     float64
	metric *fixed
}

// of returns the metric of a value.
func (k *values) of(d *prometheus.Desc, kind prometheus.ValueType, is float64, labels ...string) prometheus.Metric {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := valueOf{desc: d}
	copy(key.labels[:], labels)
	if was, known := k.last[key]; known && was.is == is {
		return was.metric
	}
	if k.last == nil {
		k.last = map[valueOf]value{}
	}
	v := value{is, &fixed{prometheus.MustNewConstMetric(d, kind, is, labels...)}}
	k.last[key] = v
	return v.metric
}

// child is a metric of a vec.
type child interface {
	prometheus.Metric
	versioned
}

// vec is versioned metrics that differ in the values of their labels. Its version is that of all of them.
type vec[M child] struct {
	prometheus.Collector // Describe
	changes
	create func(of *changes, values ...string) M

	mu       sync.Mutex
	children map[string]M // by the values
	sorted   []M          // by the values
}

func newVec[M child](of prometheus.Collector, create func(of *changes, values ...string) M) *vec[M] {
	return &vec[M]{Collector: of, create: create, children: map[string]M{}}
}

// WithLabelValues returns the metric with these values. It panics if there are more or fewer than labels.
func (v *vec[M]) WithLabelValues(values ...string) M {
	key := strings.Join(values, "\x00")
	v.mu.Lock()
	defer v.mu.Unlock()
	m, known := v.children[key]
	if !known {
		m = v.create(&v.changes, values...)
		v.children[key] = m
		v.sorted = v.sorted[:0]
		for _, key := range slices.Sorted(maps.Keys(v.children)) {
			v.sorted = append(v.sorted, v.children[key])
		}
		v.count()
	}
	return m
}

// Reset removes all metrics. None that was returned before may be used any more.
func (v *vec[M]) Reset() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Collector.(interface{ Reset() }).Reset()
	clear(v.children)
	v.sorted = nil
	v.count()
}

// Collect implements prometheus.Collector.
func (v *vec[M]) Collect(out chan<- prometheus.Metric) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range v.sorted {
		out <- m
	}
}
