package metrics

import "github.com/prometheus/client_golang/prometheus"

// oldNames are collectors that show series once more, under the names they had
// in older vLLM releases.
func (m *Metrics) oldNames(g *gauges) []prometheus.Collector {
	const cache = "Old name of a series of the prefix cache."
	return []prometheus.Collector{
		alias("vllm:gpu_cache_usage_perc", "Old name of vllm:kv_cache_usage_perc.", usageOnly{g}),
		alias("vllm:time_per_output_token_seconds", "Old name of vllm:inter_token_latency_seconds.", m.engine.betweenTokens),
		alias("vllm:gpu_prefix_cache_queries_total", cache, m.engine.cacheQueries),
		alias("vllm:gpu_prefix_cache_hits_total", cache, m.engine.cacheHits),
	}
}

// alias shows the one series of a collector under another name.
func alias(name, help string, of prometheus.Collector) prometheus.Collector {
	return &aliased{prometheus.NewDesc(name, help, nil, nil), of}
}

type aliased struct {
	desc *prometheus.Desc
	of   prometheus.Collector
}

// Describe implements prometheus.Collector.
func (a *aliased) Describe(out chan<- *prometheus.Desc) { out <- a.desc }

// Collect implements prometheus.Collector.
func (a *aliased) Collect(out chan<- prometheus.Metric) {
	one := make(chan prometheus.Metric, 1)
	a.of.Collect(one)
	out <- renamed{<-one, a.desc}
}

// renamed is a metric with another description; its value and labels stay.
type renamed struct {
	prometheus.Metric
	desc *prometheus.Desc
}

// Desc implements prometheus.Metric.
func (r renamed) Desc() *prometheus.Desc { return r.desc }

// usageOnly is the third of the gauges.
type usageOnly struct{ *gauges }

// Collect implements prometheus.Collector.
func (u usageOnly) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(u.usage, prometheus.GaugeValue, u.stats().KVUsed)
}
