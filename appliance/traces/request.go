package traces

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"vapp.dev/engine"
)

// request is the span of one request of a client. It is the engine.Observer of the engine's
// requests that come from it: one for each prompt, one for each beam and step of a beam search. The
// span ends when the reply and all of them have ended.
type request struct {
	t    *Tracer
	span trace.Span
	id   string // of the trace, in hex

	mu       sync.Mutex
	open     int            // choices that run, and one for the reply
	first    engine.Request // the first one
	requests int
	figures  figures
	choices  []engine.RequestStats // that have ended, the first maxChoices
	status   int                   // of HTTP; 0: the reply has not ended
	failure  string                // type of the error; "": none
}

// maxEvents is how many events a span has. The first choices that end have theirs.
const maxEvents = 32

// maxChoices is how many choices are kept for events: each has at least two.
const maxChoices = maxEvents / 2

// Start begins the span of a request that came with header, on a route. Its parent is the one of
// traceparent. It returns the context of the request, the value of the header traceresponse, and
// what is to be called when the reply has ended, with the status of HTTP and the type of the error,
// "" without one.
func (t *Tracer) Start(ctx context.Context, header map[string][]string, route string) (inner context.Context, response string, ended func(status int, failure string)) {
	parent := w3c.Extract(context.Background(), headers(header))
	_, span := t.tracer.Start(parent, spanRequest, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(httpRoute.String(route)))
	c := span.SpanContext()
	response = "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + c.TraceFlags().String()
	if !span.IsRecording() {
		return ctx, response, func(int, string) {}
	}
	r := &request{t: t, span: span, id: c.TraceID().String(), open: 1}
	return engine.WithObserver(ctx, r), response, r.replied
}

// TraceID returns the trace of an observer, "" if it has none.
func TraceID(o engine.Observer) string {
	if r, is := o.(*request); is {
		return r.id
	}
	return ""
}

// Submitted implements engine.Observer.
func (r *request) Submitted(q engine.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.requests++; r.requests == 1 {
		q.Prompt, q.Grammar, q.Thinking = nil, nil, nil
		r.first = q
	}
	r.open += q.N
}

// Ended implements engine.Observer. The engine's loop calls it, so the span of a reply that has
// already ended is finished beside it.
func (r *request) Ended(s engine.RequestStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.figures.add(s)
	if len(r.choices) < maxChoices {
		s.Observer = nil
		r.choices = append(r.choices, s)
	}
	if r.open--; r.open == 0 {
		r.t.ending.Go(r.finish)
	}
}

// replied notes the end of the reply.
func (r *request) replied(status int, failure string) {
	r.mu.Lock()
	r.status, r.failure = status, failure
	r.open--
	last := r.open == 0
	r.mu.Unlock()
	if last {
		r.finish()
	}
}

// finish ends the span. Nothing else uses r any more.
func (r *request) finish() {
	f := &r.figures
	a := make([]attribute.KeyValue, 0, 20)
	a = append(a, httpStatus.Int(r.status))
	if r.requests > 0 {
		a = r.ask(a)
		a = f.attributes(a)
		r.events()
	}
	failed := r.status >= 500
	switch {
	case f.failed:
		failed, r.failure = true, orElse(r.failure, "EngineError")
	case f.aborted:
		r.failure = orElse(r.failure, "abort")
	}
	if r.failure != "" {
		a = append(a, errorType.String(r.failure))
	}
	r.span.SetAttributes(a...)
	if failed {
		r.span.SetStatus(codes.Error, r.failure)
	}
	r.span.End()
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// ask adds what the client asked for.
func (r *request) ask(a []attribute.KeyValue) []attribute.KeyValue {
	q, model := &r.first, r.t.model
	if q.Adapter != "" {
		model = q.Adapter
	}
	a = append(a, requestID.String(q.ReplyID), responseModel.String(model), requestN.Int(q.N))
	if q.Pooling != engine.NoPooling {
		return a
	}
	return append(a, requestMaxTokens.Int(q.Params.MaxTokens), requestTopP.Float64(q.Params.TopP), requestTemperature.Float64(q.Params.Temperature))
}

// events adds the phases of the choices.
func (r *request) events() {
	left := maxEvents
	for i := range r.choices {
		s := &r.choices[i]
		var which []attribute.KeyValue
		if s.N > 1 {
			which = append(which, choiceIndex.Int(s.Choice))
		}
		add := func(name string, at time.Time, more ...attribute.KeyValue) {
			if at.IsZero() || left == 0 {
				return
			}
			left--
			r.span.AddEvent(name, trace.WithTimestamp(at), trace.WithAttributes(append(more, which...)...))
		}
		add(eventQueued, s.Queued)
		add(eventScheduled, s.Scheduled)
		add(eventFirstToken, s.FirstToken)
		for _, at := range s.Preempted {
			add(eventPreempted, at)
		}
		add(eventFinished, s.Finished, finishReason.String(s.Finish.String()))
	}
}
