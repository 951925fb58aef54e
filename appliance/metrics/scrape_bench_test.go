//go:build linux

package metrics

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vapp.dev/engine"
)

// BenchmarkScrape measures GET /metrics of a loaded server, in both formats: the handler alone, when nothing but a time
// has changed since the scrape before, when steps ran and requests ended meanwhile (busy), and when other programs have
// the processor's caches (cold); and a local connection, with the kernel's part and that of the client, which is in
// the same process. The metric %core is the share of one core that scrapes 50 ms apart take.
func BenchmarkScrape(b *testing.B) {
	m := loadedServer()
	handler, hooks := m.Handler(), m.Hooks(m.cfg)
	work := func() {
		for range 3 {
			hooks.Step(engine.StepStats{GenerationTokens: 8, BetweenTokens: make([]time.Duration, 8)})
		}
		hooks.Finished(engine.RequestStats{ID: "x", N: 1, Finish: engine.FinishStop, GenerationTokens: 9, PromptTokens: 3})
		m.ObserveRequest(HTTPRequest{Method: "POST", Handler: "/v1/completions", Status: 200, In: 7, Out: 100, Duration: time.Second})
	}
	other := make([]byte, 64<<20)
	evict := func() {
		for i := 0; i < len(other); i += 64 {
			other[i]++
		}
	}
	for _, c := range []struct{ name, accept string }{
		{"text", ""}, {"openmetrics", "application/openmetrics-text; version=1.0.0"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", c.accept)
		handle := func() int64 {
			w := &discard{header: http.Header{}}
			handler.ServeHTTP(w, r)
			return w.bytes
		}
		for _, h := range []struct {
			name   string
			before func()
		}{{"", func() {}}, {"/busy", work}, {"/cold", evict}, {"/busy/cold", func() { work(); evict() }}} {
			b.Run(c.name+"/handler"+h.name, func(b *testing.B) { perScrape(b, unix.CLOCK_THREAD_CPUTIME_ID, h.before, handle) })
		}
		b.Run(c.name+"/connection", func(b *testing.B) {
			s := httptest.NewServer(handler)
			defer s.Close()
			perScrape(b, unix.CLOCK_PROCESS_CPUTIME_ID, func() {}, func() int64 {
				r, err := http.NewRequest(http.MethodGet, s.URL, http.NoBody)
				if err != nil {
					b.Fatal(err)
				}
				r.Header.Set("Accept", c.accept)
				reply, err := http.DefaultClient.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				defer reply.Body.Close()
				bytes, err := io.Copy(io.Discard, reply.Body)
				if err != nil {
					b.Fatal(err)
				}
				return bytes
			})
		})
	}
}

// perScrape runs scrape, which returns the bytes of the body, each time after before, and reports the bytes and %core,
// the processor time of scrape by a clock of unix.ClockGettime.
func perScrape(b *testing.B, clock int32, before func(), scrape func() int64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var bytes int64
	var took time.Duration
	for b.Loop() {
		before()
		start := cpuTime(b, clock)
		bytes = scrape()
		took += cpuTime(b, clock) - start
	}
	const second = 20 // scrapes
	b.ReportMetric(100*second*took.Seconds()/float64(b.N), "%core")
	b.ReportMetric(float64(bytes), "bytes")
}

// discard counts the bytes of a reply.
type discard struct {
	header http.Header
	bytes  int64
}

func (d *discard) Header() http.Header { return d.header }

func (d *discard) WriteHeader(int) {}

func (d *discard) Write(p []byte) (int, error) {
	d.bytes += int64(len(p))
	return len(p), nil
}

// cpuTime returns the processor time by a clock.
func cpuTime(b *testing.B, clock int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
