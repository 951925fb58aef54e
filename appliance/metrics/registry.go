package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// registry is Prometheus' registry, which also keeps the list of its collectors.
type registry struct {
	*prometheus.Registry

	mu         sync.Mutex
	collectors []prometheus.Collector

	metrics chan prometheus.Metric // of collect
}

// Register implements prometheus.Registerer.
func (r *registry) Register(c prometheus.Collector) error {
	if err := r.Registry.Register(c); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.collectors = append(r.collectors, c)
	return nil
}

// MustRegister implements prometheus.Registerer.
func (r *registry) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// channelSize is more than the series of one collector here can be: those of HTTP have the most, a few
// hundred, since routes, methods and classes of status are bounded.
const channelSize = 4096

// collect calls f with each metric. It starts no goroutine, whose wake-ups would be most of the time of
// a scrape of an idle server. Only one goroutine may call it.
func (r *registry) collect(f func(prometheus.Metric)) {
	r.mu.Lock()
	all := r.collectors[:len(r.collectors):len(r.collectors)]
	r.mu.Unlock()
	if r.metrics == nil {
		r.metrics = make(chan prometheus.Metric, channelSize)
	}
	for _, c := range all {
		if m, single := c.(prometheus.Metric); single {
			f(m)
			continue
		}
		c.Collect(r.metrics)
		for range len(r.metrics) {
			f(<-r.metrics)
		}
	}
}
