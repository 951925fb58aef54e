package metrics

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// registry is Prometheus' registry, which also keeps the list of its collectors.
type registry struct {
	*prometheus.Registry

	mu         sync.Mutex
	collectors []prometheus.Collector
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

// collect calls f with each metric. Collectors run in a goroutine, which does not outlive the call.
func (r *registry) collect(f func(prometheus.Metric)) {
	r.mu.Lock()
	all := slices.Clone(r.collectors)
	r.mu.Unlock()
	metrics := make(chan prometheus.Metric, 1024)
	go func() {
		defer close(metrics)
		for _, c := range all {
			c.Collect(metrics)
		}
	}()
	for m := range metrics {
		f(m)
	}
}
