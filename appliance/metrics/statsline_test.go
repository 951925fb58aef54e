package metrics

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"vapp.dev/engine"
)

func TestLine(t *testing.T) {
	for _, c := range []struct {
		f     figures
		s     engine.Stats
		index int
		want  string
	}{
		{
			figures{prompt: 12.34, generated: 5.06}, engine.Stats{Running: 1}, 0,
			"Engine 000: Avg prompt throughput: 12.3 tokens/s, Avg generation throughput: 5.1 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%",
		},
		{
			figures{preempted: 2, hitRate: 33.333}, engine.Stats{Waiting: 7, KVUsed: 0.5}, 12,
			"Engine 012: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 7 reqs, Preemptions: 2, GPU KV cache usage: 50.0%, Prefix cache hit rate: 33.3%",
		},
		{
			figures{preempted: 1}, engine.Stats{Running: 2, Waiting: 3, KVUsed: 1, Swapped: 2, SwapUsed: 0.125}, 0,
			"Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 2 reqs, Waiting: 3 reqs, Swapped: 2 reqs, Preemptions: 1, GPU KV cache usage: 100.0%, CPU KV cache usage: 12.5%, Prefix cache hit rate: 0.0%",
		},
	} {
		if got := c.f.line(c.index, c.s); got != c.want {
			t.Errorf("\n got %s\nwant %s", got, c.want)
		}
	}
}

// TestSpecLine checks the line of speculative decoding against vLLM's form.
func TestSpecLine(t *testing.T) {
	var i interval
	i.add(engine.StepStats{GenerationTokens: 1})
	if f := i.take(time.Second); f.spec != "" {
		t.Errorf("without proposals: %q", f.spec)
	}
	for range 100 {
		i.add(engine.StepStats{Drafts: 1, DraftTokens: 3, AcceptedTokens: 1, AcceptedPerPosition: []int{1, 0}})
	}
	i.add(engine.StepStats{Drafts: 25, DraftTokens: 100, AcceptedTokens: 50, AcceptedPerPosition: []int{0, 50}})
	const want = "SpecDecoding metrics: Mean acceptance length: 2.20, Accepted throughput: 15.00 tokens/s, Drafted throughput: 40.00 tokens/s, " +
		"Accepted: 150 tokens, Drafted: 400 tokens, Per-position acceptance rate: 0.800, 0.400, Avg Draft acceptance rate: 37.5%"
	if f := i.take(10 * time.Second); f.spec != want {
		t.Errorf("\n got %s\nwant %s", f.spec, want)
	}
	if f := i.take(time.Second); f.spec != "" {
		t.Errorf("after the line was taken: got %q, want none", f.spec)
	}
}

// TestHitRateWindow checks that the hit rate covers the last requests only, and a limited
// number of steps with lookups.
func TestHitRateWindow(t *testing.T) {
	for name, requests := range map[string]int{"steps": 0, "requests": 4} {
		var i interval
		i.add(engine.StepStats{FirstTokens: make([]time.Duration, 3)}) // without earlier lookups
		first := make([]time.Duration, requests)
		i.add(engine.StepStats{CacheQueries: 50, CacheHits: 50, FirstTokens: first})
		if f := i.take(time.Second); f.hitRate != 100 {
			t.Errorf("%s: hit rate %v, want 100", name, f.hitRate)
		}
		more := recent/max(1, requests) - 1
		for range more {
			i.add(engine.StepStats{CacheQueries: 50})
			i.add(engine.StepStats{FirstTokens: first}) // later than the lookup
		}
		if f, want := i.take(time.Second), 100/float64(more+1); f.hitRate != want {
			t.Errorf("%s: hit rate %v, want %v", name, f.hitRate, want)
		}
		i.add(engine.StepStats{CacheQueries: 50, FirstTokens: first})
		if f := i.take(time.Second); f.hitRate != 0 || len(i.window) != more+1 {
			t.Errorf("%s: hit rate %v over %d, want 0 over %d", name, f.hitRate, len(i.window), more+1)
		}
	}
}

// logged collects the lines of a log.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// take returns the lines since the last call.
func (l *logged) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.buf.Reset()
	if l.buf.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(l.buf.String(), "\n"), "\n")
}

// TestLogFigures checks the lines on a fake clock: busy, one line of zeros, silence, busy
// again, and a changed interval.
func TestLogFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out logged
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		m := New(testConfig())
		step := m.Hooks(m.cfg).Step
		var every atomic.Int64
		every.Store(int64(10 * time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		go m.LogFigures(ctx, log, func() time.Duration { return time.Duration(every.Load()) })

		after := func(d time.Duration, want ...string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			got := out.take()
			if len(got) != len(want) {
				t.Fatalf("%d lines, want %d: %q", len(got), len(want), got)
			}
			for i, w := range want {
				if !strings.HasPrefix(got[i], "level=INFO") || !strings.Contains(got[i], w) {
					t.Errorf("line %q, want info with %q", got[i], w)
				}
			}
		}
		const zero = "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s"
		step(engine.StepStats{PromptTokens: 100, GenerationTokens: 25})
		after(9 * time.Second)
		after(1500*time.Millisecond, "Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 2.5 tokens/s")
		after(10*time.Second, zero)
		after(100 * time.Second)
		step(engine.StepStats{GenerationTokens: 10})
		after(10*time.Second, "Avg generation throughput: 1.0 tokens/s")
		every.Store(0)
		step(engine.StepStats{GenerationTokens: 10})
		after(100 * time.Second)
		every.Store(int64(2 * time.Second))
		after(1*time.Second, "Avg generation throughput")
		cancel()
		synctest.Wait()
	})
}
