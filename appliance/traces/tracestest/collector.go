// Package tracestest has a collector of OpenTelemetry in this process, for tests: it takes spans over
// gRPC and HTTP and keeps them. It must not ship in the binary. Start reading at Collector.
package tracestest

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	service "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// Span is a span as the collector got it. Ids are in hex, Parent and State are "" where there is
// none. Values of attributes are string, bool, int64 or float64.
type Span struct {
	Name, Trace, ID, Parent, State string
	Kind, Status, Message          string // as OTLP names them: SPAN_KIND_SERVER, STATUS_CODE_ERROR
	Start, End                     time.Time
	Attributes, Resource           map[string]any
	Events                         []Event
}

// Event is an event of a span.
type Event struct {
	Name       string
	At         time.Time
	Attributes map[string]any
}

// Collector takes spans. Its zero value is not usable; New returns one.
type Collector struct {
	service.UnimplementedTraceServiceServer
	GRPC, HTTP string // URLs

	mu      sync.Mutex
	changed *sync.Cond
	spans   []Span
	exports int
	held    chan struct{} // nil: exports are answered at once
	headers map[string]string
}

// New returns a collector that listens on two ports of this machine until the test ends.
func New(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{headers: map[string]string{}}
	c.changed = sync.NewCond(&c.mu)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	service.RegisterTraceServiceServer(g, c)
	go func() { _ = g.Serve(l) }()
	h := httptest.NewServer(http.HandlerFunc(c.serve))
	c.GRPC, c.HTTP = "http://"+l.Addr().String(), h.URL
	t.Cleanup(func() {
		c.Release()
		g.Stop()
		h.CloseClientConnections()
		h.Close()
	})
	return c
}

// Hold makes the collector answer no export until Release.
func (c *Collector) Hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = make(chan struct{})
	}
}

// Release answers the held exports.
func (c *Collector) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held != nil {
		close(c.held)
		c.held = nil
	}
}

// WaitExports waits until n exports have begun.
func (c *Collector) WaitExports(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.exports < n {
		c.changed.Wait()
	}
}

// Wait waits until it has n spans of that name, and returns them.
func (c *Collector) Wait(name string, n int) []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		var out []Span
		for _, s := range c.spans {
			if s.Name == name {
				out = append(out, s)
			}
		}
		if len(out) >= n {
			return out
		}
		c.changed.Wait()
	}
}

// Spans returns the spans so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Header returns a header of the last export.
func (c *Collector) Header(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headers[name]
}

// Export implements OTLP over gRPC.
func (c *Collector) Export(ctx context.Context, r *service.ExportTraceServiceRequest) (*service.ExportTraceServiceResponse, error) {
	h, _ := metadata.FromIncomingContext(ctx)
	first := map[string]string{}
	for k, v := range h {
		first[k] = v[0]
	}
	c.take(ctx, r, first)
	return &service.ExportTraceServiceResponse{}, nil
}

// serve implements OTLP over HTTP.
func (c *Collector) serve(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	var r service.ExportTraceServiceRequest
	if err != nil || q.Method != http.MethodPost || q.URL.Path != "/v1/traces" || q.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(body, &r) != nil {
		http.Error(w, "no spans in protobuf to /v1/traces", http.StatusBadRequest)
		return
	}
	first := map[string]string{}
	for k := range q.Header {
		first[http.CanonicalHeaderKey(k)] = q.Header.Get(k)
	}
	c.take(q.Context(), &r, first)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *Collector) take(ctx context.Context, r *service.ExportTraceServiceRequest, headers map[string]string) {
	c.mu.Lock()
	c.exports++
	c.changed.Broadcast()
	held := c.held
	c.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = headers
	for _, of := range r.ResourceSpans {
		about := values(of.Resource.GetAttributes())
		for _, in := range of.ScopeSpans {
			for _, s := range in.Spans {
				span := Span{
					Name: s.Name, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
					State: s.TraceState, Kind: s.Kind.String(), Status: s.Status.GetCode().String(), Message: s.Status.GetMessage(),
					Start: time.Unix(0, int64(s.StartTimeUnixNano)), End: time.Unix(0, int64(s.EndTimeUnixNano)),
					Attributes: values(s.Attributes), Resource: about,
				}
				for _, e := range s.Events {
					span.Events = append(span.Events, Event{e.Name, time.Unix(0, int64(e.TimeUnixNano)), values(e.Attributes)})
				}
				c.spans = append(c.spans, span)
			}
		}
	}
	c.changed.Broadcast()
}

func values(list []*common.KeyValue) map[string]any {
	out := map[string]any{}
	for _, a := range list {
		switch v := a.Value.GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[a.Key] = v.StringValue
		case *common.AnyValue_BoolValue:
			out[a.Key] = v.BoolValue
		case *common.AnyValue_IntValue:
			out[a.Key] = v.IntValue
		case *common.AnyValue_DoubleValue:
			out[a.Key] = v.DoubleValue
		default:
			out[a.Key] = nil
		}
	}
	return out
}
