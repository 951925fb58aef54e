package traces

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"vapp.dev/appliance/traces/tracestest"
	"vapp.dev/engine"
	"vapp.dev/engine/sample"
)

// lines is a log whose lines a test waits for.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	more *sync.Cond
}

func newLines() *lines {
	l := &lines{}
	l.more = sync.NewCond(&l.mu)
	return l
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.more.Broadcast()
	return l.text.Write(p)
}

// wait waits until the log has a text, n times.
func (l *lines) wait(text string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for strings.Count(l.text.String(), text) < n {
		l.more.Wait()
	}
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// open opens a tracer that exports at once, with a log.
func open(t *testing.T, c Config) (*Tracer, *lines) {
	t.Helper()
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	log := newLines()
	c.Log, c.Model, c.Version = slog.New(slog.NewTextHandler(log, nil)), "toy", "v1"
	tracer, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		_ = tracer.Close(ctx)
	})
	return tracer, log
}

const (
	parentTrace = "0af7651916cd43dd8448eb211c80319c"
	parentSpan  = "b7ad6b7169203331"
)

func parent(flags string) map[string][]string {
	return map[string][]string{"Traceparent": {"00-" + parentTrace + "-" + parentSpan + "-" + flags}, "Tracestate": {"a=1", "b=2"}}
}

// ended makes a span of a request that ended at once.
func ended(tracer *Tracer, h map[string][]string) string {
	_, response, end := tracer.Start(context.Background(), h, "/v1/completions")
	end(200, "")
	return response
}

// vllm are the attributes that vLLM 0.33 sets on llm_request of a request that generates tokens
// (vllm/v1/engine/output_processor.py, do_tracing), sorted.
var vllm = []string{
	"gen_ai.latency.e2e", "gen_ai.latency.time_in_model_decode", "gen_ai.latency.time_in_model_inference", "gen_ai.latency.time_in_model_prefill",
	"gen_ai.latency.time_in_queue", "gen_ai.latency.time_to_first_token", "gen_ai.request.id", "gen_ai.request.max_tokens", "gen_ai.request.n",
	"gen_ai.request.temperature", "gen_ai.request.top_p", "gen_ai.usage.completion_tokens", "gen_ai.usage.prompt_tokens",
}

// TestRequest checks the span of a request with two choices, of which one was preempted: over both
// protocols, names, figures, events and parent.
func TestRequest(t *testing.T) {
	for _, protocol := range []string{GRPC, HTTP} {
		t.Run(protocol, func(t *testing.T) {
			collector := tracestest.New(t)
			at := collector.GRPC
			if protocol == HTTP {
				at = collector.HTTP
			}
			t.Setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=secret")
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,zone=a")
			tracer, _ := open(t, Config{Endpoint: at, Protocol: protocol, ServiceName: "chat"})
			ctx, response, end := tracer.Start(context.Background(), parent("01"), "/v1/completions")
			o := engine.ObserverOf(ctx)
			if TraceID(o) != parentTrace {
				t.Errorf("trace %s", TraceID(o))
			}
			p := sample.Default()
			p.MaxTokens, p.TopP, p.Temperature = 7, 0.9, 0
			o.Submitted(engine.Request{ID: "cmpl-1-89abcdef", ReplyID: "cmpl-1", N: 2, Params: p})
			t0 := time.Now()
			ms := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Millisecond) }
			one := engine.RequestStats{
				ID: "cmpl-1-89abcdef", Finish: engine.FinishStop, PromptTokens: 10, CachedTokens: 4, GenerationTokens: 3, N: 2, Arrival: ms(0), Queued: ms(1), Scheduled: ms(3),
				FirstToken: ms(10), LastToken: ms(20), Finished: ms(21),
			}
			two := one
			two.Choice, two.Finish, two.GenerationTokens, two.Scheduled, two.FirstToken, two.LastToken, two.Finished = 1, engine.FinishLength, 7, ms(5), ms(12), ms(40), ms(41)
			two.Preempted = []time.Time{ms(15)}
			o.Ended(one)
			end(200, "")
			o.Ended(two) // ends the span
			s := collector.Wait("llm_request", 1)[0]
			if s.Kind != "SPAN_KIND_SERVER" || s.Trace != parentTrace || s.Parent != parentSpan || s.State != "a=1,b=2" || s.Status != "STATUS_CODE_UNSET" {
				t.Errorf("%+v", s)
			}
			if response != "00-"+parentTrace+"-"+s.ID+"-01" {
				t.Errorf("traceresponse %s", response)
			}
			want := map[string]any{
				"gen_ai.request.id": "cmpl-1", "gen_ai.request.n": int64(2), "gen_ai.request.max_tokens": int64(7), "gen_ai.request.top_p": 0.9, "gen_ai.request.temperature": 0.0,
				"gen_ai.response.model": "toy", "gen_ai.usage.prompt_tokens": int64(10), "gen_ai.usage.completion_tokens": int64(10), "gen_ai.usage.cached_tokens": int64(4),
				"gen_ai.latency.e2e": 0.041, "gen_ai.latency.time_in_queue": 0.002, "gen_ai.latency.time_to_first_token": 0.010, "gen_ai.latency.time_in_model_prefill": 0.007,
				"gen_ai.latency.time_in_model_decode": 0.030, "gen_ai.latency.time_in_model_inference": 0.037,
				"http.route": "/v1/completions", "http.response.status_code": int64(200),
			}
			for k, v := range want {
				if s.Attributes[k] != v {
					t.Errorf("%s is %v, want %v", k, s.Attributes[k], v)
				}
			}
			for k := range s.Attributes {
				if _, known := want[k]; !known {
					t.Errorf("%s: %v", k, s.Attributes[k])
				}
			}
			for _, k := range vllm {
				if _, has := s.Attributes[k]; !has {
					t.Errorf("vLLM's %s is missing", k)
				}
			}
			var events []string
			for _, e := range s.Events {
				events = append(events, e.Name+"@"+e.At.Sub(time.Unix(0, t0.UnixNano())).String())
			}
			if got := strings.Join(events, " "); got != "queued@1ms scheduled@3ms first_token@10ms finished@21ms queued@1ms scheduled@5ms first_token@12ms preempted@15ms finished@41ms" {
				t.Error(got)
			}
			if e := s.Events[len(s.Events)-1]; e.Attributes["finish_reason"] != "length" || e.Attributes["choice"] != int64(1) {
				t.Errorf("the last event has %v", e.Attributes)
			}
			if s.Resource["service.name"] != "chat" || s.Resource["service.version"] != "v1" || s.Resource["zone"] != "a" {
				t.Errorf("resource %v", s.Resource)
			}
			if name := map[string]string{GRPC: "authorization", HTTP: "Authorization"}[protocol]; collector.Header(name) != "secret" {
				t.Errorf("the header of the variable is %q", collector.Header(name))
			}
		})
	}
}

// TestFailures checks the status and the error type of requests that failed.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		name, failure, kind, status string
		code                        int
		finish                      engine.Finish
	}{
		{name: "refused", code: 400, failure: "BadRequestError", kind: "BadRequestError", status: "STATUS_CODE_UNSET"},
		{name: "overloaded", code: 503, failure: "ServiceUnavailableError", kind: "ServiceUnavailableError", status: "STATUS_CODE_ERROR"},
		{name: "failed in a stream", code: 200, finish: engine.FinishError, kind: "EngineError", status: "STATUS_CODE_ERROR"},
		{name: "client left", code: 200, failure: "ClientClosedRequest", finish: engine.FinishAbort, kind: "ClientClosedRequest", status: "STATUS_CODE_UNSET"},
		{name: "deadline", code: 200, finish: engine.FinishAbort, kind: "abort", status: "STATUS_CODE_UNSET"},
	} {
		t.Run(c.name, func(t *testing.T) {
			collector := tracestest.New(t)
			tracer, _ := open(t, Config{Endpoint: collector.GRPC})
			ctx, _, end := tracer.Start(context.Background(), nil, "/v1/completions")
			if c.finish != engine.NotFinished {
				o := engine.ObserverOf(ctx)
				o.Submitted(engine.Request{N: 1})
				o.Ended(engine.RequestStats{N: 1, Finish: c.finish, Arrival: time.Now(), Queued: time.Now(), Finished: time.Now()})
			}
			end(c.code, c.failure)
			s := collector.Wait("llm_request", 1)[0]
			if s.Parent != "" || s.Status != c.status || s.Attributes["error.type"] != c.kind || s.Attributes["http.response.status_code"] != int64(c.code) {
				t.Errorf("%+v", s)
			}
			if _, asked := s.Attributes["gen_ai.request.id"]; asked != (c.finish != engine.NotFinished) {
				t.Error("attributes of a request that did not reach the engine")
			}
		})
	}
}

// TestSampling checks who decides: the parent, else the share.
func TestSampling(t *testing.T) {
	none, all := 0.0, 1.0
	for _, c := range []struct {
		name    string
		share   *float64
		env     string
		header  map[string][]string
		sampled bool
	}{
		{"none", &none, "", nil, false},
		{"none, parent recorded", &none, "", parent("01"), true},
		{"all, parent not recorded", &all, "", parent("00"), false},
		{"all", &all, "", nil, true},
		{"default", nil, "", nil, true},
		{"variable", nil, "always_off", parent("01"), false},
		{"profile and variable", &all, "always_off", nil, true},
		{"two parents", &none, "", map[string][]string{"Traceparent": {parent("01")["Traceparent"][0], parent("01")["Traceparent"][0]}}, false},
		{"unreadable parent", &all, "", map[string][]string{"Traceparent": {"00-nothing"}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("OTEL_TRACES_SAMPLER", c.env)
			collector := tracestest.New(t)
			tracer, _ := open(t, Config{Endpoint: collector.GRPC, Sampling: c.share})
			ctx, response, end := tracer.Start(context.Background(), c.header, "/v1/completions")
			if observed := engine.ObserverOf(ctx) != nil; observed != c.sampled || strings.HasSuffix(response, "-01") != c.sampled {
				t.Errorf("sampled %v, traceresponse %s", observed, response)
			}
			end(200, "")
			if err := tracer.Close(context.Background()); err != nil {
				t.Error(err)
			}
			if n := len(collector.Spans()); n == 1 != c.sampled {
				t.Errorf("%d spans", n)
			}
		})
	}
}

// TestDeadCollector: nothing listens. Spans are dropped and counted, requests do not wait, the log has
// one line at the beginning and one when a collector is there, and nothing is lost from then on.
func TestDeadCollector(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "20")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	tracer, log := open(t, Config{Endpoint: "http://" + at, Protocol: HTTP})
	ended(tracer, nil)
	log.wait("the collector does not take spans", 1)
	ended(tracer, nil)
	for tracer.Counts().Failed < 2 {
		time.Sleep(time.Millisecond)
	}
	collector := tracestest.New(t)
	front := proxy(t, at, strings.TrimPrefix(collector.HTTP, "http://"))
	defer front()
	for tracer.Counts().Exported == 0 { // a try may still have waited for the old port
		ended(tracer, nil)
		time.Sleep(time.Millisecond)
	}
	log.wait("the collector takes spans again", 1)
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines in the log:\n%s", n, log)
	}
}

// proxy forwards connections from one address to another until it is closed.
func proxy(t *testing.T, from, to string) (closeIt func()) {
	t.Helper()
	l, err := net.Listen("tcp", from)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			go copyAll(in, out)
			go copyAll(out, in)
		}
	}()
	return func() { l.Close() }
}

func copyAll(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	to.Close()
	from.Close()
}

// TestSlowCollector: it answers no export. The queue fills, further spans are dropped and counted at
// once, and when it answers the queue is delivered.
func TestSlowCollector(t *testing.T) {
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "0") // none
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")
	collector := tracestest.New(t)
	collector.Hold()
	tracer, log := open(t, Config{Endpoint: collector.GRPC})
	ended(tracer, nil)
	collector.WaitExports(1)
	for range 20 {
		ended(tracer, nil)
	}
	log.wait("the collector takes spans too slowly", 1)
	if c := tracer.Counts(); c != (Counts{Queue: 13}) {
		t.Errorf("%+v, want 8 that wait and 13 dropped", c)
	}
	collector.Release()
	collector.Wait("llm_request", 8)
	log.wait("the collector takes spans again", 1)
	ended(tracer, nil)
	collector.Wait("llm_request", 9)
	if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "dropped=13") {
		t.Error(text)
	}
}

// steps is an exporter whose exports begin and end when the test says so.
type steps struct{ begun, end chan int }

func (s steps) ExportSpans(_ context.Context, batch []sdk.ReadOnlySpan) error {
	s.begun <- len(batch)
	<-s.end
	return nil
}

func (steps) Shutdown(context.Context) error { return nil }

// TestStillSlow: a collector that takes a batch while most of the queue waits is still too slow: the
// log does not go back and forth.
func TestStillSlow(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	log := newLines()
	e := steps{make(chan int), make(chan int)}
	s := newSpans(e, 8, slog.New(slog.NewTextHandler(log, nil)))
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(s))
	end := func() {
		_, span := provider.Tracer("").Start(context.Background(), "x")
		span.End()
	}
	end()
	taken := <-e.begun
	for range 9 {
		end() // 7 wait beside the first, 2 are dropped
	}
	log.wait("too slowly", 1)
	for e.end <- 0; taken < 8; e.end <- 0 { // how many spans a batch has depends on the SDK's timer
		batch := <-e.begun
		if text := log.String(); 8-taken > 4 && strings.Contains(text, "again") {
			t.Errorf("%d wait:\n%s", 8-taken, text)
		}
		taken += batch
	}
	if dropped := s.full.Load(); dropped != 2 {
		t.Errorf("%d dropped, want 2", dropped)
	}
	log.wait("takes spans again", 1)
	if err := provider.Shutdown(context.Background()); err != nil || strings.Count(log.String(), "\n") != 2 {
		t.Error(err, log)
	}
}

// TestClose: what waits is exported at the end, for as long as the caller allows.
func TestClose(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
	collector := tracestest.New(t)
	tracer, err := Open(Config{Endpoint: collector.GRPC, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ended(tracer, nil)
	if err := tracer.Close(context.Background()); err != nil || len(collector.Spans()) != 1 {
		t.Errorf("%v, %d spans", err, len(collector.Spans()))
	}
	collector.Hold()
	if tracer, err = Open(Config{Endpoint: collector.GRPC, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	ended(tracer, nil)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		collector.WaitExports(2)
		stop()
	}()
	if err := tracer.Close(ctx); !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "1 spans were not taken by "+collector.GRPC) {
		t.Error(err)
	}
	var none *Tracer
	if err := none.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestLoading checks the spans of a load with graphs, without, and of one that fails.
func TestLoading(t *testing.T) {
	t.Setenv("TRACEPARENT", parent("01")["Traceparent"][0])
	type p = engine.Progress
	for _, c := range []struct {
		name     string
		progress []engine.Progress
		err      error
		want     []string
	}{
		{"graphs", []p{{Done: 1, Total: 2}, {Done: 2, Total: 2}, {Done: 1, Total: 2, Capturing: true}, {Done: 2, Total: 2, Capturing: true}}, nil, []string{"Load weights UNSET", "Capture model UNSET"}},
		{"one graph", []p{{Done: 2, Total: 2}, {Done: 1, Total: 1, Capturing: true}}, nil, []string{"Load weights UNSET", "Capture model UNSET"}},
		{"graphs before the last weight", []p{{Done: 1, Total: 2}, {Done: 1, Total: 1, Capturing: true}}, nil, []string{"Load weights UNSET", "Capture model UNSET"}},
		{"no graphs", []p{{Done: 2, Total: 2}}, nil, []string{"Load weights UNSET"}},
		{"no progress", nil, nil, []string{"Load weights UNSET"}},
		{"weights fail", []p{{Done: 1, Total: 2}}, errors.New("torn"), []string{"Load weights ERROR"}},
		{"capture fails", []p{{Done: 2, Total: 2}, {Done: 1, Total: 2, Capturing: true}}, errors.New("no memory"), []string{"Load weights UNSET", "Capture model ERROR"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			collector := tracestest.New(t)
			tracer, _ := open(t, Config{Endpoint: collector.GRPC})
			var passed []engine.Progress
			report, end := tracer.Loading(func(p engine.Progress) { passed = append(passed, p) })
			for _, p := range c.progress {
				report(p)
			}
			end(c.err)
			if err := tracer.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range collector.Spans() {
				got = append(got, s.Name+" "+strings.TrimPrefix(s.Status, "STATUS_CODE_"))
				if s.Parent != parentSpan || s.Kind != "SPAN_KIND_INTERNAL" {
					t.Errorf("%+v", s)
				}
			}
			if !slices.Equal(got, c.want) || !slices.Equal(passed, c.progress) {
				t.Errorf("%q, want %q; %v passed on", got, c.want, passed)
			}
		})
	}
}

// TestManyChoices: a request of many prompts has the figures of all and the events of the first.
func TestManyChoices(t *testing.T) {
	collector := tracestest.New(t)
	tracer, _ := open(t, Config{Endpoint: collector.GRPC})
	ctx, _, end := tracer.Start(context.Background(), nil, "/v1/embeddings")
	o := engine.ObserverOf(ctx)
	for range 1000 {
		o.Submitted(engine.Request{ID: "embd-1", N: 1, Pooling: engine.PoolingMean})
		now := time.Now()
		o.Ended(engine.RequestStats{ID: "embd-1", N: 1, Pooled: true, Finish: engine.FinishStop, PromptTokens: 3, Arrival: now, Queued: now, Scheduled: now, Finished: now})
	}
	end(200, "")
	s := collector.Wait("llm_request", 1)[0]
	if kept := len(o.(*request).choices); kept != maxChoices {
		t.Errorf("%d choices are kept, want %d", kept, maxChoices)
	}
	if len(s.Events) != maxEvents || s.Attributes["gen_ai.usage.prompt_tokens"] != int64(3000) {
		t.Errorf("%d events, %v", len(s.Events), s.Attributes)
	}
	for _, absent := range []string{"gen_ai.request.max_tokens", "gen_ai.request.temperature", "gen_ai.latency.time_to_first_token", "gen_ai.latency.time_in_model_decode"} {
		if v, has := s.Attributes[absent]; has {
			t.Errorf("a pooling request has %s %v", absent, v)
		}
	}
	if _, has := s.Attributes["gen_ai.latency.time_in_model_prefill"]; !has {
		t.Error("no prefill")
	}
}

// FuzzHeaders: whatever the headers are, a span begins, and its traceresponse has the trace of a
// valid parent.
func FuzzHeaders(f *testing.F) {
	f.Add("00-"+parentTrace+"-"+parentSpan+"-01", "a=1")
	f.Add("01-"+parentTrace+"-"+parentSpan+"-01-more", "a=1,b@c=2")
	f.Add("", strings.Repeat("a=1,", 600))
	tracer, err := Open(Config{Endpoint: "http://127.0.0.1:1", Protocol: HTTP, Log: slog.New(slog.DiscardHandler), Sampling: new(float64)})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, parent, state string) {
		_, response, end := tracer.Start(context.Background(), map[string][]string{"Traceparent": {parent}, "Tracestate": {state}}, "/")
		end(200, "")
		if len(response) != 55 || response[35] != '-' || strings.Trim(response, "0123456789abcdef-") != "" {
			t.Errorf("traceresponse %q", response)
		}
		if strings.HasPrefix(response[3:], strings.Repeat("0", 32)) {
			t.Errorf("%q gives no trace: %q", parent, response)
		}
	})
}
