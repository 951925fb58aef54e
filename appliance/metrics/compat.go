package metrics

import "github.com/prometheus/client_golang/prometheus"

// oldNames returns collectors that export series under their names in older vLLM
// releases.
func (m *Metrics) oldNames(f factory, g *gauges) []prometheus.Collector {
	const cache = "Old name of a series of the prefix cache."
	return []prometheus.Collector{
		alias(f, "vllm:gpu_cache_usage_perc", "Old name of vllm:kv_cache_usage_perc.", usageOnly{g}),
		alias(f, "vllm:time_per_output_token_seconds", "Old name of vllm:inter_token_latency_seconds.", m.engine.betweenTokens),
		alias(f, "vllm:gpu_prefix_cache_queries_total", cache, m.engine.cacheQueries),
		alias(f, "vllm:gpu_prefix_cache_hits_total", cache, m.engine.cacheHits),
	}
}

// alias returns a collector of of's single series under another name.
func alias(f factory, name, help string, of prometheus.Collector) prometheus.Collector {
	return &aliasCollector{f.desc(name, help), of}
}

type aliasCollector struct {
	desc *prometheus.Desc
	of   prometheus.Collector
}

// Describe implements prometheus.Collector.
func (a *aliasCollector) Describe(out chan<- *prometheus.Desc) { out <- a.desc }

// Collect implements prometheus.Collector.
func (a *aliasCollector) Collect(out chan<- prometheus.Metric) {
	if m, single := a.of.(prometheus.Metric); single {
		out <- renamed{m, a.desc}
		return
	}
	one := make(chan prometheus.Metric, 1)
	a.of.Collect(one)
	out <- renamed{<-one, a.desc}
}

// renamed is a metric with another description but the same value and labels.
type renamed struct {
	prometheus.Metric
	desc *prometheus.Desc
}

// Desc implements prometheus.Metric.
func (r renamed) Desc() *prometheus.Desc { return r.desc }

// version implements versioned.
func (r renamed) version() uint64 {
	if v, is := r.Metric.(versioned); is {
		return v.version()
	}
	return unversioned
}

// usageOnly collects only the usage of the gauges.
type usageOnly struct{ *gauges }

// Collect implements prometheus.Collector.
func (u usageOnly) Collect(out chan<- prometheus.Metric) {
	out <- u.of(u.usage, prometheus.GaugeValue, u.stats().KVUsed)
}
