package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// registry is Prometheus' registry, which also keeps the list of its collectors.
type registry struct {
	*prometheus.Registry
	changes // of its collectors that are versionedTogether, and of their list

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
	r.count()
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

// all returns the collectors.
func (r *registry) all() []prometheus.Collector {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.collectors[:len(r.collectors):len(r.collectors)]
}
