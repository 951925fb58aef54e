package appliance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vapp.dev/appliance/traces"
	"vapp.dev/appliance/traces/tracestest"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
)

// clientTrace and clientSpan are what a client sends as its trace.
const clientTrace, clientSpan = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

// traced sends a request whose client records its trace, and returns the reply.
func (s *server) traced(t *testing.T, path, body string) (code int, header http.Header, text string) {
	t.Helper()
	r, err := http.NewRequest("POST", s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Traceparent", "00-"+clientTrace+"-"+clientSpan+"-01")
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	b, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, reply.Header, string(b)
}

// phases returns the names of a span's events.
func phases(s tracestest.Span) string {
	var out []string
	for _, e := range s.Events {
		out = append(out, e.Name)
	}
	return strings.Join(out, " ")
}

// TestTraces sends a request to each protocol of a server that records only traces of clients that do,
// and compares its span with the reply.
func TestTraces(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	t.Setenv("TRACEPARENT", "00-"+clientTrace+"-"+clientSpan+"-01") // of loading
	collector := tracestest.New(t)
	dir := t.TempDir()
	template := filepath.Join(dir, "chat.jinja")
	writeFile(t, template, "{% for m in messages %}{{ m.content }}{% endfor %}")
	s := start(t, fmt.Sprintf(`serve: {traces: {endpoint: %q, sampling: 0}, responses: store: %q}, parsers: chatTemplate: %q`, collector.GRPC, filepath.Join(dir, "r.db"), template))
	if load := collector.Wait("Load weights", 1)[0]; load.Trace != clientTrace || load.Resource["service.name"] != "vapp" {
		t.Errorf("%+v", load)
	}
	const said = `"messages":[{"role":"user","content":"hello there"}]`
	const one = "queued scheduled first_token finished"
	for i, c := range []struct {
		path, body string
		phases     string
		n, tokens  int64
	}{
		{"/v1/completions", `{"prompt":"hello there","max_tokens":5,"ignore_eos":true,"temperature":0.5,"top_p":0.25}`, one, 1, 5},
		{"/v1/completions", `{"prompt":"hello there","max_tokens":5,"ignore_eos":true,"temperature":0.5,"top_p":0.25,"stream":true}`, one, 1, 5},
		{"/v1/completions", `{"prompt":["hello there","and there"],"n":2,"max_tokens":5,"ignore_eos":true,"temperature":0.5,"top_p":0.25}`, one + " " + one + " " + one + " " + one, 2, 20},
		{"/v1/chat/completions", `{` + said + `,"max_tokens":5,"ignore_eos":true,"temperature":0.5,"top_p":0.25}`, one, 1, 5},
		{"/v1/messages", `{` + said + `,"max_tokens":5,"temperature":0.5,"top_p":0.25}`, one, 1, 0},
		{"/v1/responses", `{"input":"hello there","max_output_tokens":5,"temperature":0.5,"top_p":0.25}`, one, 1, 0},
		{"/v1/responses", `{"input":"hello there","max_output_tokens":5,"temperature":0.5,"top_p":0.25,"background":true}`, one, 1, 0},
		{"/invocations", `{"prompt":"hello there","max_tokens":5,"ignore_eos":true,"temperature":0.5,"top_p":0.25}`, one, 1, 5},
	} {
		code, header, text := s.traced(t, c.path, c.body)
		if code != 200 {
			t.Fatalf("%s: %d %s", c.path, code, text)
		}
		span := collector.Wait("llm_request", i+1)[i]
		if span.Kind != "SPAN_KIND_SERVER" || span.Trace != clientTrace || span.Parent != clientSpan || span.Status != "STATUS_CODE_UNSET" {
			t.Errorf("%s: %+v", c.path, span)
		}
		if got, want := header.Get("Traceresponse"), "00-"+clientTrace+"-"+span.ID+"-01"; got != want {
			t.Errorf("%s: traceresponse %q, want %q", c.path, got, want)
		}
		a := span.Attributes
		if a["http.route"] != c.path || a["gen_ai.response.model"] != "toy" || a["gen_ai.request.n"] != c.n || a["gen_ai.request.max_tokens"] != int64(5) ||
			a["gen_ai.request.temperature"] != 0.5 || a["gen_ai.request.top_p"] != 0.25 {
			t.Errorf("%s: %v", c.path, a)
		}
		if n := a["gen_ai.usage.completion_tokens"].(int64); c.tokens > 0 && n != c.tokens || n < 1 || a["gen_ai.usage.prompt_tokens"].(int64) < 1 {
			t.Errorf("%s: %v", c.path, a)
		}
		var reply struct{ ID string }
		if first, _, _ := strings.Cut(strings.TrimPrefix(text, "data: "), "\n"); json.Unmarshal([]byte(first), &reply) != nil || reply.ID == "" || a["gen_ai.request.id"] != reply.ID {
			t.Errorf("%s: id %q, gen_ai.request.id %v", c.path, reply.ID, a["gen_ai.request.id"])
		}
		times := []string{"time_in_queue", "time_to_first_token", "e2e", "time_in_model_prefill", "time_in_model_decode", "time_in_model_inference"}
		for _, name := range times {
			if v, is := a["gen_ai.latency."+name].(float64); !is || v < 0 || v > span.End.Sub(span.Start).Seconds() {
				t.Errorf("%s: %s is %v in a span of %v", c.path, name, a["gen_ai.latency."+name], span.End.Sub(span.Start))
			}
		}
		if strings.Join(slices.Sorted(slices.Values(strings.Fields(phases(span)))), " ") != strings.Join(slices.Sorted(slices.Values(strings.Fields(c.phases))), " ") {
			t.Errorf("%s: phases %s", c.path, phases(span))
		}
	}
	n := len(collector.Wait("llm_request", 8))
	if code, text := s.post(t, "/v1/completions", `{"prompt":"not recorded","max_tokens":1}`); code != 200 {
		t.Fatal(text)
	}
	if code, header, text := s.traced(t, "/tokenize", `{"prompt":"no model"}`); code != 200 || header.Get("Traceresponse") != "" {
		t.Fatal(text)
	}
	if code, _, text := s.traced(t, "/v1/completions", `{"prompt":"x","max_tokens":-1}`); code != 400 {
		t.Fatal(code, text)
	}
	all := collector.Wait("llm_request", n+1)
	if refused := all[n]; len(all) != n+1 || refused.Attributes["error.type"] != "BadRequestError" || refused.Attributes["http.response.status_code"] != int64(400) || len(refused.Events) != 0 {
		t.Errorf("%d spans, the last %+v", len(all), refused)
	}
	s.eventually(t, "exported spans are counted", func() bool { return s.metricValue(t, "vapp_trace_spans_exported_total") == fmt.Sprint(n+2) })
	r, err := http.NewRequest("GET", s.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if text, err := io.ReadAll(reply.Body); err != nil || !strings.Contains(string(text), `# {trace_id="`+clientTrace+`"}`) {
		t.Errorf("%v: no exemplar", err)
	}
	if text := s.log.String(); !strings.Contains(text, "msg=traces endpoint="+collector.GRPC+" protocol=grpc sampler=\"parentbased_traceidratio 0\"") {
		t.Error(text)
	}
}

// TestTracesOfPooling: the span of a request for embeddings has the figures of all inputs.
func TestTracesOfPooling(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	collector := tracestest.New(t)
	dir, err := filepath.Abs("../engine/models/testdata/pooling/qwen3-embed")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir, fmt.Sprintf(`model: dtype: "float32", serve: traces: {endpoint: %q, protocol: "http/protobuf"}`, collector.HTTP))
	for i, c := range []struct{ path, body string }{
		{"/v1/embeddings", `{"input":["one","another one"]}`},
		{"/v1/score", `{"text_1":"one","text_2":"another one"}`},
	} {
		code, _, text := s.traced(t, c.path, c.body)
		var reply struct {
			ID    string
			Usage struct {
				Prompt int64 `json:"prompt_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(text), &reply); err != nil || code != 200 {
			t.Fatal(code, text)
		}
		span := collector.Wait("llm_request", i+1)[i]
		a := span.Attributes
		if phases(span) != "queued scheduled finished queued scheduled finished" || a["gen_ai.request.id"] != reply.ID || a["gen_ai.usage.prompt_tokens"] != reply.Usage.Prompt || a["gen_ai.latency.time_in_model_prefill"] == nil {
			t.Errorf("%s: %s, %v, reply %+v", c.path, phases(span), a, reply)
		}
	}
}

// TestTraceOfLeaver: the span of a stream whose client left ends when the engine has ended it.
func TestTraceOfLeaver(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	collector := tracestest.New(t)
	s := startLong(t, fmt.Sprintf(`serve: traces: endpoint: %q`, collector.GRPC))
	ctx, leave := context.WithCancel(context.Background())
	r, err := s.ask(ctx, s.modelName(), endless, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	leave()
	r.Body.Close()
	span := collector.Wait("llm_request", 1)[0]
	last := span.Events[len(span.Events)-1]
	if span.Parent != "" || span.Attributes["error.type"] != "ClientClosedRequest" || phases(span) != "queued scheduled first_token finished" || last.Attributes["finish_reason"] != "abort" {
		t.Errorf("%+v", span)
	}
}

// TestTracesAtTheEnd: spans that wait reach the collector when the server drains. It waits for a
// collector that does not answer as long as flushTraces, and no request waits for it.
func TestTracesAtTheEnd(t *testing.T) {
	defer func(d time.Duration) { flushTraces = d }(flushTraces)
	for _, hangs := range []bool{false, true} {
		t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
		collector := tracestest.New(t)
		if flushTraces = time.Minute; hangs {
			flushTraces = 10 * time.Millisecond
			collector.Hold()
		}
		s := start(t, fmt.Sprintf(`serve: traces: endpoint: %q`, collector.GRPC))
		if code, _, text := s.traced(t, "/v1/completions", `{"prompt":"hello","max_tokens":2}`); code != 200 {
			t.Fatal(text)
		}
		s.drain()
		err := <-s.ended
		s.ended <- err
		if err != nil {
			t.Error(err)
		}
		if n := len(collector.Spans()); hangs != (n == 0) {
			t.Errorf("hangs %v: %d spans", hangs, n)
		}
		if lost := strings.Contains(s.log.String(), "2 spans were not taken by "+collector.GRPC); lost != hangs {
			t.Errorf("hangs %v: %s", hangs, s.log)
		}
	}
}

// TestTracesWithoutCollector: requests are answered, lost spans counted, and the log says it once.
func TestTracesWithoutCollector(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "20")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s := start(t, fmt.Sprintf(`serve: traces: endpoint: "http://%s"`, l.Addr()))
	for n := 1; n <= 3; n++ {
		if code, _, text := s.traced(t, "/v1/completions", `{"prompt":"hello","max_tokens":2}`); code != 200 {
			t.Fatal(text)
		}
		s.eventually(t, "lost spans", func() bool { // that of loading too
			return s.metricValue(t, `vapp_trace_spans_dropped_total{reason="export"}`) == fmt.Sprint(n+1)
		})
	}
	if n := strings.Count(s.log.String(), "spans are dropped"); n != 1 {
		t.Errorf("%d lines: %s", n, s.log)
	}
}

// TestNoTraces: a variable alone turns no traces on, and the log says so.
func TestNoTraces(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	s := start(t, "")
	code, header, text := s.traced(t, "/v1/completions", `{"prompt":"hello","max_tokens":2}`)
	if code != 200 || header.Get("Traceresponse") != "" {
		t.Error(code, header, text)
	}
	for _, want := range []string{"the profile has no serve.traces", "variable=OTEL_EXPORTER_OTLP_ENDPOINT", "traceparent and tracestate of requests are ignored"} {
		if !strings.Contains(s.log.String(), want) {
			t.Errorf("no %q in %s", want, s.log)
		}
	}
}

// TestTracesRefused: settings that cannot be used are refused at their field, with the variable.
func TestTracesRefused(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	toy := toyModel(t)
	for more, want := range map[string]string{
		`serve: traces: {}`:                                             `serve.traces: variable OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" is no protocol of this server`,
		`serve: traces: endpoint: "collector:4317"`:                     `serve.traces.endpoint: invalid value "collector:4317"; allowed: "http://HOST:PORT"`,
		`serve: traces: endpoint: "http://a:99999"`:                     `OTEL_EXPORTER_OTLP_PROTOCOL`,
		`serve: traces: {endpoint: "http://a:99999", protocol: "grpc"}`: `serve.traces.endpoint: "http://a:99999": 99999 is no port`,
	} {
		file := t.TempDir() + "/p.cue"
		writeFile(t, file, profileText(toy, more))
		a, err := New(Config{Profile: file, Machine: Machine{Backends: []backend.Opener{ref.Opener{}}}, Log: io.Discard})
		if err == nil {
			t.Errorf("%s: a server at %v", more, a.Addr())
			a.socket.socket.Close()
			a.closeTraces()
		} else if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want …%s", more, err, want)
		}
	}
}

// TestTracesArePlanned: the plan has the memory that waiting spans may take.
func TestTracesArePlanned(t *testing.T) {
	toy := toyModel(t)
	heap := func(more string) int64 {
		p, err := Prepare("p.cue", Machine{Backends: []backend.Opener{ref.Opener{}}, Text: []byte(profileText(toy, more))})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		return p.Plan.GoMemoryLimit
	}
	if got := heap("serve: traces: {}") - heap(""); got != traces.MaxBytes {
		t.Errorf("traces are planned with %d bytes, and may take %d", got, traces.MaxBytes)
	}
}
