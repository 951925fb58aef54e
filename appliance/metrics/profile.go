package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The parts of a profile that the gauge of staleness distinguishes.
const (
	PartProfile     = "profile"     // everything else
	PartKeys        = "keys"        // serve.apiKeys and the files that it names
	PartCertificate = "certificate" // the files of serve.tls
)

var parts = []string{PartProfile, PartKeys, PartCertificate}

// staleness is a gauge for each part of the profile: the seconds since when the files have
// differed from what is in force.
type staleness struct {
	desc  *prometheus.Desc
	since map[string]*atomic.Int64 // milliseconds; 0: they agree
	now   func() time.Time
}

func newStaleness() *staleness {
	s := &staleness{
		desc: prometheus.NewDesc("vapp_profile_stale_seconds",
			"How long the profile's files have differed from what is in force, or could not be read; 0: they agree.", []string{"part"}, nil),
		since: map[string]*atomic.Int64{}, now: time.Now,
	}
	for _, p := range parts {
		s.since[p] = &atomic.Int64{}
	}
	return s
}

// Describe implements prometheus.Collector.
func (s *staleness) Describe(out chan<- *prometheus.Desc) { out <- s.desc }

// Collect implements prometheus.Collector.
func (s *staleness) Collect(out chan<- prometheus.Metric) {
	for _, p := range parts {
		age := 0.0
		if ms := s.since[p].Load(); ms > 0 {
			age = max(0.001, s.now().Sub(time.UnixMilli(ms)).Seconds())
		}
		out <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, age, p)
	}
}

// SetStale shows since when a part of the profile's files has differed from what is in
// force; the zero time: it does not.
func (m *Metrics) SetStale(part string, since time.Time) {
	ms := int64(0)
	if !since.IsZero() {
		ms = since.UnixMilli()
	}
	m.vapp.stale.since[part].Store(ms)
}

// ReadFailed counts a file of a part of the profile that could not be read.
func (m *Metrics) ReadFailed(part string) { m.vapp.readFailures.WithLabelValues(part).Inc() }
