package metrics

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
)

// Handler returns the handler of GET /metrics, which writes the text format or, if the
// client accepts it, OpenMetrics. The rest, such as protobuf and the choice of names, is promhttp's.
func (m *Metrics) Handler() http.Handler {
	e, others := newEncoder(m), m.promHandler()
	asked := &negotiation{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		format, kind := asked.format(r.Header)
		if r.URL.RawQuery != "" || kind != expfmt.TypeTextPlain && kind != expfmt.TypeOpenMetrics {
			others.ServeHTTP(w, r)
			return
		}
		in := textFormat
		if kind == expfmt.TypeOpenMetrics {
			in = openFormat
		}
		b, err := e.encode(in)
		if err != nil {
			others.ServeHTTP(w, r)
			return
		}
		defer e.release(b)
		w.Header().Set("Content-Type", string(format))
		w.Header().Set("Content-Length", strconv.Itoa(len(b.text)))
		_, _ = w.Write(b.text)
	})
}

// negotiation keeps the format of the last Accept header: a client sends the same one each time.
type negotiation struct{ last atomic.Pointer[negotiated] }

type negotiated struct {
	accept string
	format expfmt.Format
	kind   expfmt.FormatType
}

// format returns the format that a client accepts.
func (n *negotiation) format(h http.Header) (expfmt.Format, expfmt.FormatType) {
	accept := h.Get("Accept")
	if l := n.last.Load(); l != nil && l.accept == accept {
		return l.format, l.kind
	}
	f := expfmt.NegotiateIncludingOpenMetrics(h)
	l := &negotiated{accept, f, f.FormatType()}
	n.last.Store(l)
	return l.format, l.kind
}

// promHandler returns the handler of what the encoder does not write.
func (m *Metrics) promHandler() http.Handler { return Expose(m.gatherer()) }

// Gatherer returns the series, for Expose.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.gatherer() }

// Expose returns promhttp's handler, with bounds as floatBounds writes them, for the series of several models
// together.
func Expose(g prometheus.Gatherer) http.Handler {
	expose := promhttp.HandlerFor(g, promhttp.HandlerOpts{
		EnableOpenMetrics:  true,
		DisableCompression: true, // floatBounds must read the text
		ErrorHandling:      promhttp.HTTPErrorOnError,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := floats.Get().(*floatBounds)
		f.ResponseWriter = w
		expose.ServeHTTP(f, r)
		f.end()
		f.ResponseWriter = nil
		floats.Put(f)
	})
}

// floats holds the buffers of earlier scrapes.
var floats = sync.Pool{New: func() any { return &floatBounds{} }}

// floatBounds rewrites the le values of buckets in the form of Python's client, 1.0 for
// 1, since queries and rules written for vLLM compare them as text. It keeps the body until end.
type floatBounds struct {
	http.ResponseWriter
	body, out []byte
}

// Write keeps p.
func (f *floatBounds) Write(p []byte) (int, error) {
	f.body = append(f.body, p...)
	return len(p), nil
}

// end writes the body at once. It does not change formats other than text.
func (f *floatBounds) end() {
	f.out = f.out[:0]
	if isText(f.Header().Get("Content-Type")) {
		for rest := f.body; len(rest) > 0; {
			n := bytes.IndexByte(rest, '\n') + 1
			if n == 0 {
				n = len(rest)
			}
			f.out = appendLine(f.out, rest[:n])
			rest = rest[n:]
		}
	} else {
		f.out = append(f.out, f.body...)
	}
	f.body = f.body[:0]
	_, _ = f.ResponseWriter.Write(f.out)
}

func isText(contentType string) bool {
	return strings.HasPrefix(contentType, "text/plain") || strings.HasPrefix(contentType, "application/openmetrics-text")
}

// appendLine appends one line with its bound rewritten. The encoder writes le as the last label, so that
// the last `le="` is never part of another label's value.
func appendLine(out, line []byte) []byte {
	const label = `le="`
	if name := bytes.IndexByte(line, '{'); name < 0 || !bytes.HasSuffix(line[:name], []byte("_bucket")) {
		return append(out, line...)
	}
	at := bytes.LastIndex(line, []byte(label))
	if at < 0 || line[at-1] != ',' && line[at-1] != '{' {
		return append(out, line...)
	}
	at += len(label)
	end := bytes.IndexByte(line[at:], '"')
	if end < 0 {
		return append(out, line...)
	}
	return append(appendBound(append(out, line[:at]...), line[at:at+end]), line[at+end:]...)
}

// appendBound appends a bound as Python writes it.
func appendBound(out, bound []byte) []byte {
	switch {
	case !bytes.ContainsAny(bound, "eEnN"): // neither an exponent nor infinite
		out = append(out, bound...)
	case string(bound) == "+Inf":
		return append(out, bound...)
	default:
		v, err := strconv.ParseFloat(string(bound), 64)
		if err != nil {
			return append(out, bound...)
		}
		bound = strconv.AppendFloat(nil, v, 'f', -1, 64)
		out = append(out, bound...)
	}
	if bytes.IndexByte(bound, '.') < 0 {
		out = append(out, ".0"...)
	}
	return out
}
