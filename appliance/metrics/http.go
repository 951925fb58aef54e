package metrics

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// httpSeries are the HTTP metrics, with vLLM's names and buckets.
type httpSeries struct {
	requests        *vec[*counter]
	sizeIn, sizeOut *vec[*summary]
	duration        *vec[*histogram]
	durationFine    prometheus.Histogram
}

var (
	coarseBuckets = []float64{0.1, 0.5, 1}
	fineBuckets   = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60}
)

func newHTTPSeries(r prometheus.Registerer) *httpSeries {
	f := factory{Registerer: r}
	return &httpSeries{
		requests:     f.counters("http_requests_total", "Requests by method, status class and route.", "method", "status", "handler"),
		sizeIn:       f.summaries("http_request_size_bytes", "Bytes of request bodies, by route.", "handler"),
		sizeOut:      f.summaries("http_response_size_bytes", "Bytes of response bodies, by route.", "handler"),
		duration:     f.histograms("http_request_duration_seconds", "Request to end of response, by route and method.", coarseBuckets, "handler", "method"),
		durationFine: f.histogram("http_request_duration_highr_seconds", "Request to end of response, of all routes, in many buckets.", fineBuckets),
	}
}

// uncounted lists the routes that probes, scrapers and the page call.
var uncounted = []string{"/metrics", "/metrics/", "/health", "/livez", "/readyz", "/load", "/ping", "/version", "/server_info", "/admin/status", "/admin/drift"}

// methods lists the values of the label method. Others become "other", since clients can
// send any method.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// HTTPRequest describes one answered HTTP request.
type HTTPRequest struct {
	Method, Handler string // Handler is the route's pattern, "" for an unknown path
	Status          int
	Duration        time.Duration
	In, Out         int64 // bytes of request and reply bodies
}

// ObserveRequest counts a request, unless its route is one of probes and scrapers.
func (m *Metrics) ObserveRequest(a HTTPRequest) {
	if slices.Contains(uncounted, a.Handler) {
		return
	}
	m.http.observe(a)
}

func (h *httpSeries) observe(a HTTPRequest) {
	if a.Handler == "" {
		a.Handler = "none"
	}
	if !slices.Contains(methods, a.Method) {
		a.Method = "other"
	}
	took := seconds(a.Duration)
	h.requests.WithLabelValues(a.Method, strconv.Itoa(a.Status/100)+"xx", a.Handler).Inc()
	h.sizeIn.WithLabelValues(a.Handler).Observe(float64(a.In))
	h.sizeOut.WithLabelValues(a.Handler).Observe(float64(a.Out))
	h.duration.WithLabelValues(a.Handler, a.Method).Observe(took)
	h.durationFine.Observe(took)
}
