package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"vapp.dev/engine"
)

// The bucket bounds of vLLM 0.19, on which dashboards and autoscalers depend. All are in
// seconds, except the last two.
var (
	latencyBuckets   = []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	firstBuckets     = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	betweenBuckets   = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	choicesBuckets   = []float64{1, 2, 5, 10, 20}
	iterationBuckets = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
)

// lengthBuckets returns 1, 2, 5, 10, 20, 50, … up to the model length.
func lengthBuckets(maxModelLen int) []float64 {
	longest := float64(maxModelLen)
	out := []float64{1} // never empty, which would select default bounds
	for tens := 1.0; tens <= longest; tens *= 10 {
		for _, m := range []float64{1, 2, 5} {
			if b := m * tens; b > 1 && b <= longest {
				out = append(out, b)
			}
		}
	}
	return out
}

// engineSeries are the series that the hooks update, with the labels model_name and engine.
type engineSeries struct {
	promptTokens, cachedTokens         prometheus.Counter
	localCompute, localHit             prometheus.Counter // prompt tokens by source
	deviceHit                          prometheus.Counter // cached prompt tokens by tier
	generationTokens                   prometheus.Counter
	cacheQueries, cacheHits            prometheus.Counter
	imageQueries, imageHits            prometheus.Counter
	preemptions                        prometheus.Counter
	success                            map[engine.Finish]prometheus.Counter
	firstToken, betweenTokens          prometheus.Histogram
	timePerToken, endToEnd             prometheus.Histogram
	queued, prefill, decode, inference prometheus.Histogram
	promptLength, generationLength     prometheus.Histogram
	longestChoice, maxTokens, computed prometheus.Histogram
	choices, iteration                 prometheus.Histogram
	traced                             observer
}

// finishReasons lists the values of the label finished_reason.
var finishReasons = []engine.Finish{engine.FinishStop, engine.FinishLength, engine.FinishAbort, engine.FinishError}

func newEngineSeries(f factory, maxModelLen int) *engineSeries {
	length := lengthBuckets(maxModelLen)
	s := &engineSeries{
		promptTokens:     f.counter("vllm:prompt_tokens_total", "Prompt tokens processed, those found in the prefix cache included."),
		cachedTokens:     f.counter("vllm:prompt_tokens_cached_total", "Prompt tokens found in the prefix cache."),
		generationTokens: f.counter("vllm:generation_tokens_total", "Generated tokens."),
		cacheQueries:     f.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache."),
		cacheHits:        f.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache."),
		imageQueries:     f.counter("vllm:mm_cache_queries_total", "Images looked up in the encoder cache."),
		imageHits:        f.counter("vllm:mm_cache_hits_total", "Images found in the encoder cache; the others were encoded."),
		preemptions:      f.counter("vllm:num_preemptions_total", "Requests preempted for lack of KV pages."),
		firstToken:       f.histogram("vllm:time_to_first_token_seconds", "Arrival to first token.", firstBuckets),
		betweenTokens:    f.histogram("vllm:inter_token_latency_seconds", "Time since the previous output of the same request.", betweenBuckets),
		timePerToken:     f.histogram("vllm:request_time_per_output_token_seconds", "Mean time of a request's tokens after the first.", betweenBuckets),
		endToEnd:         f.histogram("vllm:e2e_request_latency_seconds", "Arrival to finish.", latencyBuckets),
		queued:           f.histogram("vllm:request_queue_time_seconds", "Queued to first scheduled.", latencyBuckets),
		prefill:          f.histogram("vllm:request_prefill_time_seconds", "First scheduled to first token.", latencyBuckets),
		decode:           f.histogram("vllm:request_decode_time_seconds", "First token to last token.", latencyBuckets),
		inference:        f.histogram("vllm:request_inference_time_seconds", "First scheduled to last token.", latencyBuckets),
		promptLength:     f.histogram("vllm:request_prompt_tokens", "Prompt length of finished requests.", length),
		generationLength: f.histogram("vllm:request_generation_tokens", "Output length of finished requests.", length),
		longestChoice:    f.histogram("vllm:request_max_num_generation_tokens", "Longest output among the choices of a request.", length),
		maxTokens:        f.histogram("vllm:request_params_max_tokens", "Effective max_tokens of finished requests.", length),
		computed:         f.histogram("vllm:request_prefill_kv_computed_tokens", "Prompt tokens computed, those of the prefix cache left out.", length),
		choices:          f.histogram("vllm:request_params_n", "Choices asked for by a request.", choicesBuckets),
		iteration:        f.histogram("vllm:iteration_tokens_total", "Prompt and generated tokens of a step.", iterationBuckets),
		success:          map[engine.Finish]prometheus.Counter{},
	}
	source := f.counters("vllm:prompt_tokens_by_source_total", "Prompt tokens processed, by where their KV came from.", "source")
	s.localCompute = source.WithLabelValues("local_compute")
	s.localHit = source.WithLabelValues("local_cache_hit")
	source.WithLabelValues("external_kv_transfer")
	tier := f.counters("vllm:prompt_tokens_cached_by_source_total", "Prompt tokens found in the prefix cache, by the tier that held them; all are of the KV arena, which is device.", "source")
	s.deviceHit = tier.WithLabelValues("device")
	for _, other := range []string{"host", "disk", "p2p", "external_unspecified"} {
		tier.WithLabelValues(other)
	}
	success := f.counters("vllm:request_success_total", "Finished requests.", "finished_reason")
	for _, reason := range finishReasons {
		s.success[reason] = success.WithLabelValues(reason.String())
	}
	return s
}

// factory creates and registers series, each with labels. Wrapping the registerer would add the
// labels too, but anew at each scrape.
type factory struct {
	prometheus.Registerer
	labels prometheus.Labels
}

// desc returns a description with the factory's labels.
func (f factory) desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, f.labels)
}

func (f factory) counter(name, help string) prometheus.Counter {
	return register(f, &counter{Counter: prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: f.labels})})
}

func (f factory) counters(name, help string, labels ...string) *vec[*counter] {
	of := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: f.labels}, labels)
	return register(f, newVec(of, func(all *changes, values ...string) *counter {
		return &counter{of.WithLabelValues(values...), changes{of: all}}
	}))
}

func (f factory) gauge(name, help string) *gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: f.labels})
	return register(f, &gauge{metric: g, value: g})
}

func (f factory) gauges(name, help string, labels ...string) *vec[*gauge] {
	of := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: f.labels}, labels)
	return register(f, newVec(of, func(all *changes, values ...string) *gauge {
		g := of.WithLabelValues(values...)
		return &gauge{g, g, changes{of: all}}
	}))
}

func (f factory) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return register(f, &histogram{Histogram: prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: f.labels, Buckets: buckets})})
}

func (f factory) histograms(name, help string, buckets []float64, labels ...string) *vec[*histogram] {
	of := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: f.labels, Buckets: buckets}, labels)
	return register(f, newVec(of, func(all *changes, values ...string) *histogram {
		return &histogram{of.WithLabelValues(values...).(prometheus.Histogram), changes{of: all}}
	}))
}

func (f factory) summaries(name, help string, labels ...string) *vec[*summary] {
	of := prometheus.NewSummaryVec(prometheus.SummaryOpts{Name: name, Help: help, ConstLabels: f.labels}, labels)
	return register(f, newVec(of, func(all *changes, values ...string) *summary {
		return &summary{of.WithLabelValues(values...).(prometheus.Summary), changes{of: all}}
	}))
}

// register registers c and returns it.
func register[C prometheus.Collector](f factory, c C) C {
	if r, direct := f.Registerer.(*registry); direct {
		if v, is := any(c).(versionedTogether); is {
			v.countIn(&r.changes)
		}
	}
	f.MustRegister(c)
	return c
}
