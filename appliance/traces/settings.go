package traces

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// ConfigError is an error of a setting: of a field of Config, by its name in the profile, or of a
// variable.
type ConfigError struct {
	Field    string // "" with Variable
	Variable string
	Message  string
}

func (e *ConfigError) Error() string {
	if e.Variable != "" {
		return "variable " + e.Variable + ": " + e.Message
	}
	return e.Message
}

// settings are the settings after the variables were read.
type settings struct {
	endpoint string // a URL, for the log
	given    string // by the profile; "": the SDK reads the variable or has a default
	protocol string
	sampler  string // as OTEL_TRACES_SAMPLER names it
	queue    int    // spans that may wait
}

// Variables of the collector's address and of the protocol, the first that is set wins.
var (
	endpointVariables = []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"}
	protocolVariables = []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"}
)

// EndpointVariable returns the set variable that names a collector, "" if none is.
func EndpointVariable() string {
	name, _ := firstSet(endpointVariables)
	return name
}

func firstSet(names []string) (name, value string) {
	for _, n := range names {
		if v := strings.TrimSpace(os.Getenv(n)); v != "" {
			return n, v
		}
	}
	return "", ""
}

// resolve checks the configuration and the variables that it leaves to the SDK, which would
// replace a wrong value by a default.
func resolve(c Config) (s settings, err error) {
	s.given, s.endpoint, s.protocol = c.Endpoint, c.Endpoint, c.Protocol
	if s.protocol == "" {
		name, value := firstSet(protocolVariables)
		if s.protocol = value; value == "" {
			s.protocol = GRPC
		} else if value != GRPC && value != HTTP {
			return s, &ConfigError{Variable: name, Message: fmt.Sprintf("%q is no protocol of this server; set it to %s or %s, or set serve.traces.protocol", value, GRPC, HTTP)}
		}
	}
	switch name, value := firstSet(endpointVariables); {
	case s.endpoint != "":
		if err := checkEndpoint(s.endpoint); err != nil {
			return s, &ConfigError{Field: "endpoint", Message: err.Error()}
		}
	case value != "":
		if err := checkEndpoint(value); err != nil {
			return s, &ConfigError{Variable: name, Message: err.Error() + ", or set serve.traces.endpoint"}
		}
		s.endpoint = value
	case s.protocol == GRPC:
		s.endpoint, s.given = "http://localhost:4317", "http://localhost:4317"
	default:
		s.endpoint, s.given = "http://localhost:4318", "http://localhost:4318"
	}
	if s.sampler, err = samplerOf(c.Sampling); err != nil {
		return s, err
	}
	s.queue, err = queueSize()
	return s, err
}

func checkEndpoint(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return fmt.Errorf("%q is no URL of a collector; write http://HOST:PORT, or https:// for TLS", text)
	}
	if n, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || n < 1 || n > 65535) {
		return fmt.Errorf("%q: %s is no port; ports are 1 to 65535", text, u.Port())
	}
	return nil
}

// samplerOf returns the sampler's name with its share.
func samplerOf(share *float64) (string, error) {
	if share != nil {
		return fmt.Sprintf("parentbased_traceidratio %v", *share), nil
	}
	const variable, argument = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
	name, arg := strings.ToLower(strings.TrimSpace(os.Getenv(variable))), strings.TrimSpace(os.Getenv(argument))
	switch name {
	case "":
		return "parentbased_always_on", nil
	case "always_on", "always_off", "parentbased_always_on", "parentbased_always_off":
		return name, nil
	case "traceidratio", "parentbased_traceidratio":
		if arg == "" {
			return name + " 1", nil
		}
		if v, err := strconv.ParseFloat(arg, 64); err != nil || !(v >= 0 && v <= 1) {
			return "", &ConfigError{Variable: argument, Message: fmt.Sprintf("%q is no share; set it to a number from 0 to 1, or set serve.traces.sampling", arg)}
		}
		return name + " " + arg, nil
	}
	return "", &ConfigError{Variable: variable, Message: fmt.Sprintf("%q is no sampler; set it to always_on, always_off or traceidratio, each also with parentbased_ before it, or set serve.traces.sampling", name)}
}

// MaxQueue is the largest number of spans that may wait, the SDK's default. MaxBytes is what spans
// may take: each at most 16 KiB, with maxEvents events and the longest ids.
const (
	MaxQueue = sdk.DefaultMaxQueueSize
	MaxBytes = MaxQueue * 16 << 10
)

// queueSize returns how many spans may wait.
func queueSize() (int, error) {
	const variable = "OTEL_BSP_MAX_QUEUE_SIZE"
	text := strings.TrimSpace(os.Getenv(variable))
	if text == "" {
		return MaxQueue, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxQueue {
		return 0, &ConfigError{Variable: variable, Message: fmt.Sprintf("%q is no size of the queue; set it to a number from 1 to %d", text, MaxQueue)}
	}
	return n, nil
}

// exporter returns the SDK's exporter. It reads the other variables, such as those of headers,
// certificates, compression and the timeout.
func (s settings) exporter() (sdk.SpanExporter, error) {
	if s.protocol == GRPC {
		var options []otlptracegrpc.Option
		if s.given != "" {
			options = append(options, otlptracegrpc.WithEndpointURL(s.given))
		}
		return otlptracegrpc.New(context.Background(), options...)
	}
	options := []otlptracehttp.Option{otlptracehttp.WithEncoding(otlptracehttp.EncodingProtobuf)}
	if s.given != "" {
		options = append(options, otlptracehttp.WithEndpointURL(s.given))
		if u, err := url.Parse(s.given); err == nil && (u.Path == "" || u.Path == "/") {
			options = append(options, otlptracehttp.WithURLPath("/v1/traces"))
		}
	}
	return otlptracehttp.New(context.Background(), options...)
}
