package appliance

import (
	"context"
	"errors"
	"net/http"
	"time"

	"vapp.dev/appliance/api"
	"vapp.dev/appliance/metrics"
	"vapp.dev/appliance/traces"
	"vapp.dev/schema"
)

// flushTraces is the time that spans have to reach the collector when the server ends. Tests change
// it.
var flushTraces = 5 * time.Second

// openTraces opens the tracer; nil if the profile has none.
func (a *Appliance) openTraces(p *schema.Profile) (*traces.Tracer, error) {
	c := p.Serve.Traces
	if c == nil {
		return nil, nil
	}
	t, err := traces.Open(traces.Config{
		Endpoint: c.Endpoint, Protocol: c.Protocol, Sampling: c.Sampling, ServiceName: c.ServiceName,
		Model: servedNames(p)[0], Version: a.cfg.Version, Log: a.log,
	})
	var at *traces.ConfigError
	switch {
	case errors.As(err, &at) && at.Field != "":
		return nil, p.Reject("serve.traces."+at.Field, "%v", err)
	case err != nil:
		return nil, p.Reject("serve.traces", "%v", err)
	}
	return t, nil
}

// logTraces logs where spans go, or that a variable alone sends them nowhere.
func (a *Appliance) logTraces() {
	if a.traces == nil {
		if name := traces.EndpointVariable(); name != "" {
			a.log.Info("no traces: the profile has no serve.traces, which alone turns them on", "variable", name)
		}
		return
	}
	endpoint, protocol, sampler := a.traces.Describe()
	a.log.Info("traces", "endpoint", endpoint, "protocol", protocol, "sampler", sampler)
}

// traceHook returns the function that follows requests; nil without traces.
func (a *Appliance) traceHook() func(context.Context, http.Header, string) api.Trace {
	if a.traces == nil {
		return nil
	}
	return func(ctx context.Context, h http.Header, route string) api.Trace {
		inner, response, ended := a.traces.Start(ctx, h, route)
		return api.Trace{Context: inner, Response: response, Ended: func(o api.Outcome) { ended(o.Status, o.Error) }}
	}
}

// traceFigures returns the function that counts spans for the metrics; nil without traces.
func (a *Appliance) traceFigures() func() metrics.Traces {
	if a.traces == nil {
		return nil
	}
	return func() metrics.Traces { return metrics.Traces(a.traces.Counts()) }
}

// closeTraces sends the spans that wait, within flushTraces. Call it after the engine is closed.
func (a *Appliance) closeTraces() {
	ctx, stop := context.WithTimeout(context.Background(), flushTraces)
	defer stop()
	if err := a.traces.Close(ctx); err != nil {
		a.log.Warn("traces: " + schema.OneLine(err.Error()))
	}
}
