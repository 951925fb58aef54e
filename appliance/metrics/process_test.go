package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestAged checks that a collector is asked again when its metrics are processAge old, or the clock went back.
func TestAged(t *testing.T) {
	a := newAged(&counting{desc: prometheus.NewDesc("asked", "", nil, nil)})
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := prometheus.NewRegistry()
	r.MustRegister(a)
	for _, c := range []struct {
		after time.Duration
		want  float64
	}{{0, 1}, {processAge - 1, 1}, {processAge, 2}, {3 * processAge / 2, 2}, {0, 3}} {
		a.now = func() time.Time { return start.Add(c.after) }
		list, err := r.Gather()
		if err != nil || len(list) != 1 || list[0].GetMetric()[0].GetGauge().GetValue() != c.want {
			t.Errorf("after %v: %v, %v; want %v", c.after, list, err, c.want)
		}
	}
}

// counting is a collector whose metric is how often it was asked.
type counting struct {
	desc  *prometheus.Desc
	asked float64
}

// Describe implements prometheus.Collector.
func (c *counting) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *counting) Collect(out chan<- prometheus.Metric) {
	c.asked++
	out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, c.asked)
}
