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
	encoded := 0 // images that were encoded, and that no prompt has begun to compute
	return engine.Hooks{
		Step: func(s engine.StepStats) {
			encoded += s.EncodedItems
			own := min(encoded, s.Items)
			encoded -= own
			add(m.engine.imageQueries, s.Items)
			add(m.engine.imageHits, s.Items-own)
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
	for i, d := range s.FirstTokens {
		e.traced.observe(e.firstToken, seconds(d), at(s.FirstObservers, i))
	}
	e.between(s)
	e.iteration.Observe(float64(s.PromptTokens + s.GenerationTokens))
}

// between observes the times between tokens. Only the longest of a step gets an exemplar: one for
// each token would cost the loop time, and a bucket keeps only the newest.
func (e *engineSeries) between(s engine.StepStats) {
	longest := 0
	for i, d := range s.BetweenTokens {
		if d > s.BetweenTokens[longest] {
			longest = i
		}
	}
	for i, d := range s.BetweenTokens {
		if i == longest {
			e.traced.observe(e.betweenTokens, seconds(d), at(s.BetweenObservers, i))
			continue
		}
		e.betweenTokens.Observe(seconds(d))
	}
}

// at returns element i of list, nil if the list ends before.
func at(list []engine.Observer, i int) engine.Observer {
	if i < len(list) {
		return list[i]
	}
	return nil
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
	e.traced.observe(e.endToEnd, seconds(r.Finished.Sub(r.Arrival)), r.Observer)
	if r.Scheduled.IsZero() {
		e.traced.observe(e.queued, seconds(r.Finished.Sub(r.Queued)), r.Observer)
		return
	}
	e.traced.observe(e.queued, seconds(r.Scheduled.Sub(r.Queued)), r.Observer)
	if r.Pooled && r.Finish == engine.FinishStop { // a pooling request has a prefill only
		e.traced.observe(e.prefill, seconds(r.Finished.Sub(r.Scheduled)), r.Observer)
		e.traced.observe(e.inference, seconds(r.Finished.Sub(r.Scheduled)), r.Observer)
	}
	if r.FirstToken.IsZero() {
		return
	}
	decode := r.LastToken.Sub(r.FirstToken)
	e.traced.observe(e.prefill, seconds(r.FirstToken.Sub(r.Scheduled)), r.Observer)
	e.traced.observe(e.decode, seconds(decode), r.Observer)
	e.traced.observe(e.inference, seconds(r.LastToken.Sub(r.Scheduled)), r.Observer)
	if r.GenerationTokens > 1 {
		e.traced.observe(e.timePerToken, seconds(decode)/float64(r.GenerationTokens-1), r.Observer)
	} else {
		e.traced.observe(e.timePerToken, 0, r.Observer)
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
