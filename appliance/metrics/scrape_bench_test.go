//go:build unix

package metrics

import (
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
)

// BenchmarkScrape measures GET /metrics of a loaded server over a local connection, in both formats. The
// metric %core is the share of one core that scrapes 50 ms apart take, with the kernel's part and that
// of the client, which is in the same process.
func BenchmarkScrape(b *testing.B) {
	for _, c := range []struct{ name, accept string }{
		{"text", ""}, {"openmetrics", "application/openmetrics-text; version=1.0.0"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := httptest.NewServer(loadedServer().Handler())
			defer s.Close()
			var bytes int64
			before := cpuSeconds(b)
			for b.Loop() {
				r, err := http.NewRequest(http.MethodGet, s.URL, http.NoBody)
				if err != nil {
					b.Fatal(err)
				}
				r.Header.Set("Accept", c.accept)
				reply, err := http.DefaultClient.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				if bytes, err = io.Copy(io.Discard, reply.Body); err != nil {
					b.Fatal(err)
				}
				reply.Body.Close()
			}
			const second = 20 // scrapes
			b.ReportMetric(100*second*(cpuSeconds(b)-before)/float64(b.N), "%core")
			b.ReportMetric(float64(bytes), "bytes")
		})
	}
}

// cpuSeconds returns the processor time of this process.
func cpuSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
