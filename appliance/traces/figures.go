package traces

import (
	"time"

	"go.opentelemetry.io/otel/attribute"

	"vapp.dev/engine"
)

// figures are the sums of the choices of a request, and when each phase began for the first and
// ended for the last of them. Times that never were are zero.
type figures struct {
	prompt, cached, completion        int
	arrival, queued, scheduled, token time.Time // of the earliest choice
	last, finished                    time.Time // of the latest choice
	pooled, failed, aborted           bool
}

// add adds a choice that has ended. The prompt of several choices counts once.
func (f *figures) add(s engine.RequestStats) {
	if s.Choice == 0 {
		f.prompt += s.PromptTokens
		f.cached += s.CachedTokens
	}
	f.completion += s.GenerationTokens
	earliest(&f.arrival, s.Arrival)
	earliest(&f.queued, s.Queued)
	earliest(&f.scheduled, s.Scheduled)
	earliest(&f.token, s.FirstToken)
	latest(&f.last, s.LastToken)
	latest(&f.finished, s.Finished)
	f.pooled = f.pooled || s.Pooled
	f.failed = f.failed || s.Finish == engine.FinishError
	f.aborted = f.aborted || s.Finish == engine.FinishAbort
}

func earliest(t *time.Time, at time.Time) {
	if !at.IsZero() && (t.IsZero() || at.Before(*t)) {
		*t = at
	}
}

func latest(t *time.Time, at time.Time) {
	if at.After(*t) {
		*t = at
	}
}

// attributes adds the figures under vLLM's names, times in seconds. The times of phases that were
// not reached are left out; a pooling request has a prefill and no decode.
func (f *figures) attributes(a []attribute.KeyValue) []attribute.KeyValue {
	a = append(a, promptTokens.Int(f.prompt), completionTokens.Int(f.completion))
	if f.cached > 0 {
		a = append(a, cachedTokens.Int(f.cached))
	}
	between := func(k attribute.Key, from, to time.Time) {
		if !from.IsZero() && !to.IsZero() {
			a = append(a, k.Float64(max(0, to.Sub(from).Seconds())))
		}
	}
	between(endToEnd, f.arrival, f.finished)
	if f.scheduled.IsZero() {
		between(timeInQueue, f.queued, f.finished)
		return a
	}
	between(timeInQueue, f.queued, f.scheduled)
	if f.pooled {
		between(timeInPrefill, f.scheduled, f.finished)
		between(timeInInference, f.scheduled, f.finished)
		return a
	}
	between(timeToFirstToken, f.arrival, f.token)
	between(timeInPrefill, f.scheduled, f.token)
	between(timeInDecode, f.token, f.last)
	between(timeInInference, f.scheduled, f.last)
	return a
}
