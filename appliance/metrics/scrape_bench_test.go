//go:build unix

package metrics

import (
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
)

// BenchmarkScrape measures GET /metrics of a loaded server, in both formats: the handler alone, and over a
// local connection, with the kernel's part and that of the client, which is in the same process. The metric
// %core is the share of one core that scrapes 50 ms apart take.
func BenchmarkScrape(b *testing.B) {
	handler := loadedServer().Handler()
	for _, c := range []struct{ name, accept string }{
		{"text", ""}, {"openmetrics", "application/openmetrics-text; version=1.0.0"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", c.accept)
		b.Run(c.name+"/handler", func(b *testing.B) {
			perScrape(b, func() int64 {
				w := &discard{header: http.Header{}}
				handler.ServeHTTP(w, r)
				return w.bytes
			})
		})
		b.Run(c.name+"/connection", func(b *testing.B) {
			s := httptest.NewServer(handler)
			defer s.Close()
			perScrape(b, func() int64 {
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

// perScrape runs scrape, which returns the bytes of the body, and reports %core and the bytes.
func perScrape(b *testing.B, scrape func() int64) {
	var bytes int64
	before := cpuSeconds(b)
	for b.Loop() {
		bytes = scrape()
	}
	const second = 20 // scrapes
	b.ReportMetric(100*second*(cpuSeconds(b)-before)/float64(b.N), "%core")
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

// cpuSeconds returns the processor time of this process.
func cpuSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
