package metrics

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler returns the handler of GET /metrics, which writes the text format or, if the
// client accepts it, OpenMetrics.
func (m *Metrics) Handler() http.Handler {
	expose := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		EnableOpenMetrics:  true,
		DisableCompression: true, // floatBounds must read the text
		ErrorHandling:      promhttp.HTTPErrorOnError,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := &floatBounds{ResponseWriter: w}
		expose.ServeHTTP(f, r)
		f.end()
	})
}

// floatBounds rewrites the le values of buckets in the form of Python's client, 1.0 for
// 1, since queries and rules written for vLLM compare them as text.
type floatBounds struct {
	http.ResponseWriter
	line []byte // the current incomplete line
}

// Write writes complete lines, and keeps the rest. It does not change formats other than
// text.
func (f *floatBounds) Write(p []byte) (int, error) {
	if !isText(f.Header().Get("Content-Type")) {
		return f.ResponseWriter.Write(p)
	}
	n := len(p)
	var out []byte
	for {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		f.line = append(f.line, line...)
		if !whole {
			break
		}
		out = append(append(out, floatBound(f.line)...), '\n')
		f.line = f.line[:0]
		p = rest
	}
	if len(out) == 0 {
		return n, nil
	}
	if _, err := f.ResponseWriter.Write(out); err != nil {
		return 0, err
	}
	return n, nil
}

// end writes the last line if it has no newline.
func (f *floatBounds) end() {
	if len(f.line) > 0 {
		_, _ = f.ResponseWriter.Write(floatBound(f.line))
	}
}

func isText(contentType string) bool {
	return strings.HasPrefix(contentType, "text/plain") || strings.HasPrefix(contentType, "application/openmetrics-text")
}

// floatBound rewrites one line. The encoder writes le as the last label, so that the last
// `le="` is never part of another label's value.
func floatBound(line []byte) []byte {
	const label = `le="`
	at := bytes.LastIndex(line, []byte(label))
	if at <= 0 || line[0] == '#' || line[at-1] != ',' && line[at-1] != '{' {
		return line
	}
	at += len(label)
	end := bytes.IndexByte(line[at:], '"')
	if end < 0 {
		return line
	}
	bound := string(line[at : at+end])
	v, err := strconv.ParseFloat(bound, 64)
	if err != nil || bound == "+Inf" {
		return line
	}
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	out := append([]byte{}, line[:at]...)
	return append(append(out, text...), line[at+end:]...)
}
