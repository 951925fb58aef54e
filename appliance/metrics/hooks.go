package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vapp.dev/engine"
)

// Hooks returns the hooks of one engine, which update the series. Only the engine's loop calls them. c describes
// the engine; series that no engine had before appear.
func (m *Metrics) Hooks(c Config) engine.Hooks {
	f := &finisher{series: m.engine, open: map[parent]longest{}}
	spec, swap := m.specFor(c.Drafts), m.swapFor(c.Cache.SwapBytes)
	return engine.Hooks{
		Step: func(s engine.StepStats) {
			if !c.Cache.PrefixCaching {
				s.CacheQueries, s.CacheHits = 0, 0 // there were no lookups
			}
			m.engine.step(s)
			spec.step(s)
			swap.step(s)
			if s.BeyondTarget {
				m.vapp.itlBeyond.Inc()
			}
			if s.Graph != "" {
				m.vapp.graphSteps.WithLabelValues(s.Graph, s.NoGraph).Inc()
			}
			m.interval.add(s)
			m.generated.Add(int64(max(0, s.GenerationTokens)))
		},
		Finished: f.finish,
	}
}

// step counts prompt tokens when they are computed. Tokens from the prefix cache count
// when their prompt is first scheduled.
func (e *engineSeries) step(s engine.StepStats) {
	add(e.promptTokens, s.PromptTokens+s.CacheHits)
	add(e.localCompute, s.PromptTokens)
	add(e.localHit, s.CacheHits)
	add(e.deviceHit, s.CacheHits)
	add(e.cachedTokens, s.CacheHits)
	add(e.generationTokens, s.GenerationTokens)
	add(e.cacheQueries, s.CacheQueries)
	add(e.cacheHits, s.CacheHits)
	add(e.preemptions, s.Preempted)
	for _, d := range s.FirstTokens {
		e.firstToken.Observe(seconds(d))
	}
	for _, d := range s.BetweenTokens {
		e.betweenTokens.Observe(seconds(d))
	}
	e.iteration.Observe(float64(s.PromptTokens + s.GenerationTokens))
}

// add adds n if it is positive: a counter panics on negative numbers, which would stop
// the engine's loop.
func add(c prometheus.Counter, n int) { c.Add(float64(max(0, n))) }

// parent identifies a request. Its arrival distinguishes requests with the same id, since
// clients choose ids.
type parent struct {
	id      string
	arrival time.Time
}

// longest is the state of a request of which some choices have finished.
type longest struct {
	left   int // choices that have not finished
	tokens int // of the longest output so far
}

// finisher combines the choices of a request.
type finisher struct {
	series *engineSeries
	open   map[parent]longest // requests with n > 1 of which some choices have finished
}

func (f *finisher) finish(r engine.RequestStats) {
	e := f.series
	if c := e.success[r.Finish]; c != nil {
		c.Inc()
	}
	e.times(r)
	e.promptLength.Observe(float64(r.PromptTokens))
	e.generationLength.Observe(float64(r.GenerationTokens))
	e.maxTokens.Observe(float64(r.MaxTokens))
	e.computed.Observe(float64(r.PromptTokens - r.CachedTokens))
	if r.Choice == 0 {
		e.choices.Observe(float64(max(1, r.N)))
	}
	f.observeLongest(r)
}

// times observes the time of each phase of a choice. For a choice that never ran, all its
// time was queue time.
func (e *engineSeries) times(r engine.RequestStats) {
	e.endToEnd.Observe(seconds(r.Finished.Sub(r.Arrival)))
	if r.Scheduled.IsZero() {
		e.queued.Observe(seconds(r.Finished.Sub(r.Queued)))
		return
	}
	e.queued.Observe(seconds(r.Scheduled.Sub(r.Queued)))
	if r.Pooled && r.Finish == engine.FinishStop { // a pooling request has a prefill only
		e.prefill.Observe(seconds(r.Finished.Sub(r.Scheduled)))
		e.inference.Observe(seconds(r.Finished.Sub(r.Scheduled)))
	}
	if r.FirstToken.IsZero() {
		return
	}
	decode := r.LastToken.Sub(r.FirstToken)
	e.prefill.Observe(seconds(r.FirstToken.Sub(r.Scheduled)))
	e.decode.Observe(seconds(decode))
	e.inference.Observe(seconds(r.LastToken.Sub(r.Scheduled)))
	if r.GenerationTokens > 1 {
		e.timePerToken.Observe(seconds(decode) / float64(r.GenerationTokens-1))
	} else {
		e.timePerToken.Observe(0)
	}
}

// observeLongest observes the longest choice when the last one has finished.
func (f *finisher) observeLongest(r engine.RequestStats) {
	if r.N <= 1 {
		f.series.longestChoice.Observe(float64(r.GenerationTokens))
		return
	}
	key := parent{r.ID, r.Arrival}
	l, ok := f.open[key]
	if !ok {
		l.left = r.N
	}
	l.left--
	l.tokens = max(l.tokens, r.GenerationTokens)
	if l.left > 0 {
		f.open[key] = l
		return
	}
	delete(f.open, key)
	f.series.longestChoice.Observe(float64(l.tokens))
}
