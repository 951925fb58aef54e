package metrics

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// httpSeries are the HTTP metrics of vLLM's server, names and buckets alike.
type httpSeries struct {
	requests        *prometheus.CounterVec
	sizeIn, sizeOut *prometheus.SummaryVec
	duration        *prometheus.HistogramVec
	durationFine    prometheus.Histogram
}

var (
	coarseBuckets = []float64{0.1, 0.5, 1}
	fineBuckets   = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60}
)

func newHTTPSeries(r prometheus.Registerer) *httpSeries {
	f := factory{r}
	return &httpSeries{
		requests:     f.counters("http_requests_total", "Requests by method, status class and route.", "method", "status", "handler"),
		sizeIn:       f.summaries("http_request_size_bytes", "Bytes of request bodies, by route.", "handler"),
		sizeOut:      f.summaries("http_response_size_bytes", "Bytes of response bodies, by route.", "handler"),
		duration:     f.histograms("http_request_duration_seconds", "Request to end of response, by route and method.", coarseBuckets, "handler", "method"),
		durationFine: f.histogram("http_request_duration_highr_seconds", "Request to end of response, of all routes, in many buckets.", fineBuckets),
	}
}

// uncounted are the routes that probes and scrapers call.
var uncounted = []string{"/metrics", "/metrics/", "/health", "/livez", "/readyz", "/load", "/ping", "/version", "/server_info"}

// methods that become a label as they are; clients may invent others.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// Instrument counts the requests that next answers. route names the pattern
// that serves a request, "" when none does; it is the handler label, so it
// must come from a closed set.
func (m *Metrics) Instrument(next http.Handler, route func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(uncounted, r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		s := sample{handler: route(r), method: r.Method, start: time.Now()}
		in := &countedBody{ReadCloser: r.Body}
		if r.Body != nil {
			r.Body = in
		}
		out := &countedWriter{ResponseWriter: w}
		// Deferred, so that a handler that panics is counted too.
		defer func() {
			s.in, s.out, s.status = in.n, out.n, out.status
			m.http.observe(s)
		}()
		next.ServeHTTP(out, r)
	})
}

// sample is one request that was answered.
type sample struct {
	handler, method string
	status          int // 0: nothing was written
	in, out         int64
	start           time.Time
}

func (h *httpSeries) observe(s sample) {
	if s.handler == "" {
		s.handler = "none"
	}
	if !slices.Contains(methods, s.method) {
		s.method = "other"
	}
	if s.status == 0 {
		s.status = http.StatusOK
	}
	took := seconds(time.Since(s.start))
	h.requests.WithLabelValues(s.method, strconv.Itoa(s.status/100)+"xx", s.handler).Inc()
	h.sizeIn.WithLabelValues(s.handler).Observe(float64(s.in))
	h.sizeOut.WithLabelValues(s.handler).Observe(float64(s.out))
	h.duration.WithLabelValues(s.handler, s.method).Observe(took)
	h.durationFine.Observe(took)
}

// countedBody counts what a handler reads.
type countedBody struct {
	io.ReadCloser
	n int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	return n, err
}

// countedWriter counts what a handler writes. Flush and the like reach the
// writer under it through http.ResponseController.
type countedWriter struct {
	http.ResponseWriter
	status int
	n      int64
}

// Unwrap is for http.ResponseController.
func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader remembers the status; informational ones are not the answer.
func (w *countedWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *countedWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.n += int64(n)
	return n, err
}
