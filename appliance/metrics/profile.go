package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Values of the label part.
const (
	PartProfile     = "profile"     // everything else
	PartKeys        = "keys"        // serve.apiKeys and its files
	PartCertificate = "certificate" // the files of serve.tls
)

var parts = []string{PartProfile, PartKeys, PartCertificate}

// staleness is a gauge for each part of the profile: the seconds for which its files have
// differed from what is in effect.
type staleness struct {
	values
	desc  *prometheus.Desc
	since map[string]*atomic.Int64 // Unix time in milliseconds; 0: no difference
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
		out <- s.of(s.desc, prometheus.GaugeValue, age, p)
	}
}

// SetStale sets the time since when a part's files differ from what is in effect; the
// zero time: no difference.
func (m *Metrics) SetStale(part string, since time.Time) {
	ms := int64(0)
	if !since.IsZero() {
		ms = since.UnixMilli()
	}
	m.vapp.stale.since[part].Store(ms)
}

// CountReadFailure counts a failure to read a file of a part.
func (m *Metrics) CountReadFailure(part string) { m.vapp.readFailures.WithLabelValues(part).Inc() }
