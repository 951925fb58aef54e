package traces

import (
	"errors"
	"strings"
	"testing"

	"vapp.dev/appliance/traces/tracestest"
)

// TestResolve checks which of profile and variables decides, and that a wrong variable is refused,
// where the SDK would take a default.
func TestResolve(t *testing.T) {
	share := 0.25
	for _, c := range []struct {
		name   string
		config Config
		env    map[string]string
		want   string // endpoint protocol sampler; or an error
	}{
		{"defaults", Config{}, nil, "http://localhost:4317 grpc parentbased_always_on"},
		{"http", Config{Protocol: HTTP}, nil, "http://localhost:4318 http/protobuf parentbased_always_on"},
		{"profile", Config{Endpoint: "https://a:1", Sampling: &share}, map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "junk", "OTEL_TRACES_SAMPLER": "junk"}, "https://a:1 grpc parentbased_traceidratio 0.25"},
		{"variables", Config{}, map[string]string{
			"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b:2/p", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:3", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
			"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5",
		}, "http://b:2/p http/protobuf traceidratio 0.5"},
		{"general variables", Config{}, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:3", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "http://c:3 http/protobuf parentbased_always_on"},
		{"endpoint without scheme", Config{}, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "c:3"}, `variable OTEL_EXPORTER_OTLP_ENDPOINT: "c:3" is no URL of a collector; write http://HOST:PORT, or https:// for TLS, or set serve.traces.endpoint`},
		{"port", Config{Endpoint: "http://a:99999"}, nil, `"http://a:99999": 99999 is no port; ports are 1 to 65535`},
		{"protocol", Config{}, map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, `variable OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" is no protocol of this server; set it to grpc or http/protobuf, or set serve.traces.protocol`},
		{"sampler", Config{}, map[string]string{"OTEL_TRACES_SAMPLER": "jaeger_remote"}, `variable OTEL_TRACES_SAMPLER: "jaeger_remote" is no sampler`},
		{"share", Config{}, map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "NaN"}, `variable OTEL_TRACES_SAMPLER_ARG: "NaN" is no share`},
		{"queue", Config{}, map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "1000000"}, `variable OTEL_BSP_MAX_QUEUE_SIZE: "1000000" is no size of the queue; set it to a number from 1 to 2048`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			s, err := resolve(c.config)
			if err != nil {
				var at *ConfigError
				if !errors.As(err, &at) || !strings.HasPrefix(err.Error(), c.want) {
					t.Errorf("%v, want %s", err, c.want)
				}
				return
			}
			if got := s.endpoint + " " + s.protocol + " " + s.sampler; got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestVariables: the SDK takes the endpoint of the variable, and the path of the general one is its
// base.
func TestVariables(t *testing.T) {
	collector := tracestest.New(t)
	for name, set := range map[string][2]string{
		GRPC: {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.GRPC}, HTTP: {"OTEL_EXPORTER_OTLP_ENDPOINT", collector.HTTP},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(set[0], set[1])
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", name)
			t.Setenv("OTEL_SERVICE_NAME", "named-"+name)
			if EndpointVariable() != set[0] {
				t.Errorf("variable %s", EndpointVariable())
			}
			before := len(collector.Spans())
			tracer, _ := open(t, Config{})
			ended(tracer, nil)
			all := collector.Wait("llm_request", before+1)
			if got := all[before].Resource["service.name"]; got != "named-"+name {
				t.Errorf("service.name %v", got)
			}
		})
	}
}
