// Package traces sends a span of each request, and of the parts of loading, to a collector of
// OpenTelemetry, by OTLP over gRPC or HTTP. Names and attributes are vLLM's. It follows requests as
// an engine.Observer. It must not know routes, bodies or the scheduler, and must not block a request:
// what the collector does not take in time is dropped and counted. Start reading at Open in this
// file, then request in request.go.
package traces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Config says where spans go. Fields that are empty are taken from the variables of OpenTelemetry.
type Config struct {
	Endpoint    string   // http://HOST:PORT or https://HOST:PORT; a path is only used over HTTP
	Protocol    string   // GRPC or HTTP
	Sampling    *float64 // share of the traces without a parent that are recorded, 0 to 1
	ServiceName string   // the resource's service.name
	Model       string   // the first served name
	Version     string   // of vapp
	Log         *slog.Logger
}

// The protocols.
const (
	GRPC = "grpc"
	HTTP = "http/protobuf"
)

// Tracer makes spans. A nil *Tracer makes none.
type Tracer struct {
	model    string
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	spans    *spans
	settings settings
	ending   sync.WaitGroup // spans that end beside the engine's loop
}

// scope is the name of the instrumentation.
const scope = "vapp.dev/appliance/traces"

// Open returns a tracer. It does not wait for the collector, which may start later. Its error is a
// *ConfigError.
func Open(c Config) (*Tracer, error) {
	s, err := resolve(c)
	if err != nil {
		return nil, err
	}
	exporter, err := s.exporter()
	if err != nil {
		return nil, &ConfigError{Field: "endpoint", Message: err.Error()}
	}
	// Each of these sources replaces attributes of those before it.
	about, err := resource.New(context.Background(),
		resource.WithAttributes(attribute.String("service.name", "vapp"), attribute.String("service.version", c.Version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, &ConfigError{Variable: "OTEL_RESOURCE_ATTRIBUTES", Message: err.Error()}
	}
	if c.ServiceName != "" {
		own := resource.NewSchemaless(attribute.String("service.name", c.ServiceName))
		if about, err = resource.Merge(about, own); err != nil {
			return nil, &ConfigError{Field: "serviceName", Message: err.Error()}
		}
	}
	t := &Tracer{model: c.Model, settings: s, spans: newSpans(exporter, s.queue, c.Log)}
	options := []sdk.TracerProviderOption{sdk.WithResource(about), sdk.WithSpanProcessor(t.spans)}
	if c.Sampling != nil {
		options = append(options, sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(*c.Sampling))))
	}
	t.provider = sdk.NewTracerProvider(options...)
	t.tracer = t.provider.Tracer(scope, trace.WithInstrumentationVersion(c.Version))
	return t, nil
}

// Describe returns the endpoint, the protocol and the sampler, for the log.
func (t *Tracer) Describe() (endpoint, protocol, sampler string) {
	return t.settings.endpoint, t.settings.protocol, t.settings.sampler
}

// Counts are the spans since the start.
type Counts struct {
	Exported uint64 // taken by the collector
	Queue    uint64 // dropped because too many waited for the collector
	Failed   uint64 // dropped because an export failed
}

// Counts returns how many spans were exported and dropped.
func (t *Tracer) Counts() Counts {
	return Counts{Exported: t.spans.exported.Load(), Queue: t.spans.full.Load(), Failed: t.spans.failed.Load()}
}

// Close exports the spans that wait, for as long as ctx allows, and closes the connection. The
// error says how many spans were lost. Call it when the engine is closed.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ended := make(chan struct{})
	go func() {
		t.ending.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	err := t.provider.Shutdown(ctx)
	if n := t.spans.waiting.Load(); n > 0 {
		return fmt.Errorf("%d spans were not taken by %s: %w", n, t.settings.endpoint, errors.Join(err, ctx.Err()))
	}
	return err
}

// w3c reads traceparent and tracestate.
var w3c propagation.TraceContext

// headers gives the propagator the headers of a request. Several tracestate headers are one list;
// several traceparent headers are none, since a list of them is not valid.
type headers map[string][]string

func (h headers) Get(key string) string {
	name := "Traceparent"
	if key == "tracestate" {
		name = "Tracestate"
	}
	if out := strings.Join(h[name], ","); len(out) <= maxHeader {
		return out
	}
	return ""
}

// maxHeader is the maximum length of a tracestate that is kept, twice what W3C asks for at least.
const maxHeader = 1024

func (h headers) Set(string, string) {}

func (h headers) Keys() []string { return []string{"Traceparent", "Tracestate"} }
