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

	mu    sync.Mutex
	at    time.Time // of last; zero: never
	last  []prometheus.Metric
	times uint64 // that the other one was asked
}

func newAged(c prometheus.Collector) *aged { return &aged{Collector: c, now: time.Now} }

// Collect implements prometheus.Collector.
func (a *aged) Collect(out chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refresh()
	for _, m := range a.last {
		out <- m
	}
}

// version implements versioned.
func (a *aged) version() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refresh()
	return a.times
}

// refresh asks the other collector if its metrics are too old.
func (a *aged) refresh() {
	now := a.now()
	if !a.at.IsZero() && now.Sub(a.at) < processAge && !now.Before(a.at) {
		return
	}
	a.at, a.last = now, a.last[:0]
	a.times++
	all := make(chan prometheus.Metric)
	go func() {
		defer close(all)
		a.Collector.Collect(all)
	}()
	for m := range all {
		a.last = append(a.last, &fixed{m})
	}
}
