package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// processAge is the greatest age of the metrics of the process and of the Go runtime. Reading them takes
// longer than all others together, and they are not for decisions within seconds: scrapers ask every five or more.
const processAge = 3 * time.Second

// aged is a collector that returns what another one returned up to processAge ago.
type aged struct {
	prometheus.Collector
	now func() time.Time

	mu   sync.Mutex
	at   time.Time // of last; zero: never
	last []prometheus.Metric
}

func newAged(c prometheus.Collector) *aged { return &aged{Collector: c, now: time.Now} }

// Collect implements prometheus.Collector.
func (a *aged) Collect(out chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.now(); a.at.IsZero() || now.Sub(a.at) >= processAge || now.Before(a.at) {
		a.at, a.last = now, a.last[:0]
		all := make(chan prometheus.Metric)
		go func() {
			defer close(all)
			a.Collector.Collect(all)
		}()
		for m := range all {
			a.last = append(a.last, fixed{m})
		}
	}
	for _, m := range a.last {
		out <- m
	}
}
