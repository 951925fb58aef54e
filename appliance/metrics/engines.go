package metrics

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vapp.dev/engine"
)

// engines are the engines that the gauges show: two while a new one replaces an old one.
type engines struct {
	mu    sync.Mutex
	open  []*watched // the newest last
	ended engine.Stats
}

type watched struct{ stats func() engine.Stats }

// Watch shows an engine in the gauges. stats is called at each scrape and for each statistics line, and must be
// cheap. unwatch ends that. Counters go on from engine to engine; while two engines are open, the numbers of
// requests are sums and shares are the newest one's. Without an engine the gauges show an idle one.
func (m *Metrics) Watch(stats func() engine.Stats) (unwatch func()) {
	w := &watched{stats}
	m.engines.mu.Lock()
	defer m.engines.mu.Unlock()
	m.engines.open = append(m.engines.open, w)
	return func() {
		m.engines.mu.Lock()
		defer m.engines.mu.Unlock()
		if i := slices.Index(m.engines.open, w); i >= 0 {
			m.engines.open = slices.Delete(m.engines.open, i, i+1)
			m.engines.ended = sum(m.engines.ended, counters(stats()))
		}
	}
}

func (m *Metrics) snapshot() engine.Stats {
	m.engines.mu.Lock()
	defer m.engines.mu.Unlock()
	out := m.engines.ended
	for _, w := range m.engines.open {
		out = sum(out, w.stats())
	}
	return out
}

// counters returns the numbers of s that only grow.
func counters(s engine.Stats) engine.Stats {
	return engine.Stats{Preemptions: s.Preemptions, Steps: s.Steps}
}

// sum adds a newer engine's numbers to those of older ones.
func sum(old, newer engine.Stats) engine.Stats {
	newer.Running += old.Running
	newer.Waiting += old.Waiting
	newer.Deferred += old.Deferred
	newer.Swapped += old.Swapped
	newer.KVTokens += old.KVTokens
	newer.Preemptions += old.Preemptions
	newer.Steps += old.Steps
	return newer
}

// SetSleep sets the level at which the engine sleeps; 0: it is awake.
func (m *Metrics) SetSleep(level int) { m.sleep.Store(int32(level)) }

// Replace shows another engine's settings: the label model_name of all series, and vllm:cache_config_info. The
// bounds of histograms stay those of New.
func (m *Metrics) Replace(c Config) {
	m.info.set(c)
	m.model.Store(&c.Model)
}

// gatherer returns the registry's families with the label model_name of the newest engine.
func (m *Metrics) gatherer() prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		list, err := m.registry.Gather()
		if name := *m.model.Load(); name != m.cfg.Model {
			for _, f := range list {
				for _, s := range f.GetMetric() {
					renameModel(s, name)
				}
			}
		}
		return list, err
	})
}

// renameModel replaces the label model_name. Labels are shared between scrapes and must not be changed.
func renameModel(s *dto.Metric, name string) {
	i := slices.IndexFunc(s.Label, func(l *dto.LabelPair) bool { return l.GetName() == modelLabel })
	if i < 0 {
		return
	}
	label := modelLabel
	s.Label = slices.Clone(s.Label)
	s.Label[i] = &dto.LabelPair{Name: &label, Value: &name}
}

// modelLabel is the label of the first served name.
const modelLabel = "model_name"
