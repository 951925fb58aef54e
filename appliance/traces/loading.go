package traces

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"vapp.dev/engine"
)

// loading makes the spans of a load from its progress.
type loading struct {
	t      *Tracer
	parent context.Context
	span   trace.Span // the one that is open; nil: none
	loaded time.Time  // when the weights were loaded; zero: not yet

	capturing bool // graphs
}

// Loading begins the span of loading weights. It returns a function to call with the progress,
// which then calls the given one (nil: none), and one to call with the outcome of the load. The span
// of capturing graphs begins when the weights are loaded and ends with the load; a device without
// graphs has none. The parent is that of the environment: the variables TRACEPARENT and TRACESTATE,
// as for vLLM.
func (t *Tracer) Loading(progress func(engine.Progress)) (report func(engine.Progress), ended func(error)) {
	if t == nil {
		return progress, func(error) {}
	}
	l := &loading{t: t, parent: w3c.Extract(context.Background(), environment())}
	l.begin(spanLoad, time.Now())
	return func(p engine.Progress) {
		l.report(p)
		if progress != nil {
			progress(p)
		}
	}, l.end
}

// environment returns the trace context of the process.
func environment() headers {
	h := headers{}
	for key, names := range map[string][]string{"Traceparent": {"traceparent", "TRACEPARENT"}, "Tracestate": {"tracestate", "TRACESTATE"}} {
		if _, v := firstSet(names); v != "" {
			h[key] = []string{v}
		}
	}
	return h
}

func (l *loading) begin(name string, at time.Time) {
	_, l.span = l.t.tracer.Start(l.parent, name, trace.WithTimestamp(at))
}

// report follows the progress, which one goroutine at a time reports.
func (l *loading) report(p engine.Progress) {
	if p.Capturing && !l.capturing {
		l.end(nil) // of loading, if it is open
		l.capturing = true
		l.begin(spanCapture, l.loaded)
	}
	if p.Done >= p.Total {
		l.end(nil)
	}
}

// end ends the span that is open. It failed if the load did.
func (l *loading) end(err error) {
	if l.span == nil {
		return
	}
	if err != nil {
		l.span.SetAttributes(errorType.String("LoadError"))
		l.span.SetStatus(codes.Error, err.Error())
	}
	l.loaded = time.Now()
	l.span.End(trace.WithTimestamp(l.loaded))
	l.span = nil
}
