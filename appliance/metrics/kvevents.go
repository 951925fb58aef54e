package metrics

import "github.com/prometheus/client_golang/prometheus"

// KVEvents are the figures of KV events since the start, except Subscribers.
type KVEvents struct {
	Batches, Events  uint64
	Lost, Dropped    uint64
	Replays, Refused uint64
	ConnectFailures  uint64
	Subscribers      int
}

// newKVEvents returns the series of KV events.
func newKVEvents(figures func() KVEvents) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("vapp_kv_events_"+name, help, labels, nil)
	}
	return &kvEvents{
		figures:     figures,
		batches:     desc("batches_total", "Batches of KV events that were published."),
		events:      desc("total", "KV events in these batches."),
		dropped:     desc("dropped_total", "Batches that were not sent, by reason: hwm, too many waited for one subscriber; queue, the engine made them faster than they were encoded.", "reason"),
		replays:     desc("replays_total", "Replay requests that were answered."),
		refused:     desc("refused_total", "Replay requests that do not follow the protocol, and peers that do not or are too many."),
		failures:    desc("connect_failures_total", "Failed attempts to connect to serve.kvEvents.endpoint, and lost connections to it."),
		subscribers: desc("subscribers", "Subscribers that are connected."),
	}
}

type kvEvents struct {
	values
	figures                                                           func() KVEvents
	batches, events, dropped, replays, refused, failures, subscribers *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (k *kvEvents) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{k.batches, k.events, k.dropped, k.replays, k.refused, k.failures, k.subscribers} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (k *kvEvents) Collect(out chan<- prometheus.Metric) {
	f := k.figures()
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		out <- k.of(d, prometheus.CounterValue, float64(n), labels...)
	}
	count(k.batches, f.Batches)
	count(k.events, f.Events)
	count(k.dropped, f.Dropped, "hwm")
	count(k.dropped, f.Lost, "queue")
	count(k.replays, f.Replays)
	count(k.refused, f.Refused)
	count(k.failures, f.ConnectFailures)
	out <- k.of(k.subscribers, prometheus.GaugeValue, float64(f.Subscribers))
}
