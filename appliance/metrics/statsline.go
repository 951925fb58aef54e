package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"vapp.dev/engine"
)

// recent is the number of last requests that the hit rate covers.
const recent = 1000

// interval counts what happened since the last statistics line.
type interval struct {
	mu                           sync.Mutex
	prompt, generated, preempted int
	window                       []lookups // for the hit rate, the oldest first
	sum                          lookups   // sum of window
	spec                         speculation
}

// lookups counts lookups of the prefix cache. A request counts when it has its first
// token, in the entry of the last step with lookups.
type lookups struct {
	hits, queries, requests int
}

func (l lookups) plus(o lookups, sign int) lookups {
	return lookups{l.hits + sign*o.hits, l.queries + sign*o.queries, l.requests + sign*o.requests}
}

func (i *interval) add(s engine.StepStats) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.prompt += s.PromptTokens
	i.generated += s.GenerationTokens
	i.preempted += s.Preempted
	i.spec.add(s)
	if s.CacheQueries > 0 {
		i.window = append(i.window, lookups{})
	}
	if len(i.window) == 0 {
		return
	}
	l := lookups{s.CacheHits, s.CacheQueries, len(s.FirstTokens)}
	last := &i.window[len(i.window)-1]
	*last = last.plus(l, 1)
	i.sum = i.sum.plus(l, 1)
	// Each entry has lookups of at least one request, which may finish without a token.
	for len(i.window) > recent || i.sum.requests-i.window[0].requests >= recent {
		i.sum = i.sum.plus(i.window[0], -1)
		i.window = append(i.window[:0], i.window[1:]...)
	}
}

// figures are the numbers of one statistics line.
type figures struct {
	prompt, generated float64 // tokens a second
	preempted         int
	hitRate           float64 // percent
	spec              string  // line of speculative decoding; "": none
}

// take returns the figures since the last call and resets the counts.
func (i *interval) take(since time.Duration) figures {
	i.mu.Lock()
	defer i.mu.Unlock()
	var f figures
	if s := since.Seconds(); s > 0 {
		f.prompt, f.generated = float64(i.prompt)/s, float64(i.generated)/s
	}
	f.preempted = i.preempted
	if i.sum.queries > 0 {
		f.hitRate = 100 * float64(i.sum.hits) / float64(i.sum.queries)
	}
	f.spec = i.spec.take().line(since.Seconds())
	i.prompt, i.generated, i.preempted = 0, 0, 0
	return f
}

// line returns the statistics line in vLLM's wording.
func (f figures) line(index int, s engine.Stats) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Engine %03d: Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s, Running: %d reqs, Waiting: %d reqs, ",
		index, f.prompt, f.generated, s.Running, s.Waiting)
	if s.Swapped > 0 {
		fmt.Fprintf(&b, "Swapped: %d reqs, ", s.Swapped)
	}
	if f.preempted > 0 {
		fmt.Fprintf(&b, "Preemptions: %d, ", f.preempted)
	}
	fmt.Fprintf(&b, "GPU KV cache usage: %.1f%%, ", 100*s.KVUsed)
	if s.SwapUsed > 0 {
		fmt.Fprintf(&b, "CPU KV cache usage: %.1f%%, ", 100*s.SwapUsed)
	}
	fmt.Fprintf(&b, "Prefix cache hit rate: %.1f%%", f.hitRate)
	return b.String()
}

// busy reports whether any token was computed.
func (f figures) busy() bool { return f.prompt > 0 || f.generated > 0 }

// LogFigures logs a statistics line each interval, and one of speculative decoding if
// there were draft tokens, until ctx is cancelled. The level is info if this or the
// previous interval had throughput, else debug: an idle server logs one line of zeros at
// info. every returns the interval, which may change at any time; 0 or less: no lines.
func (m *Metrics) LogFigures(ctx context.Context, log *slog.Logger, every func() time.Duration) {
	last, busy := time.Now(), false
	for {
		due := every()
		pause := time.Second // since the interval may change meanwhile
		if due > 0 {
			pause = min(pause, due-time.Since(last))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		took := time.Since(last)
		if due <= 0 || took < due {
			continue
		}
		last = last.Add(took)
		f := m.interval.take(took)
		log.Log(ctx, level(f.busy() || busy), f.line(m.cfg.Engine, m.snapshot()))
		if f.spec != "" {
			log.InfoContext(ctx, f.spec)
		}
		busy = f.busy()
	}
}

func level(busy bool) slog.Level {
	if busy {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}
