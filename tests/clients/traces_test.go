//go:build clients

package clients

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3/option"
	service "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// TestTraces: a chat that OpenAI's client sends with traceparent is in a collector, below the client's
// span, with its phases and vLLM's attributes.
func TestTraces(t *testing.T) {
	spans := make(chan *trace.Span, 16)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		var got service.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(b, &got) != nil {
			http.Error(w, "no spans", http.StatusBadRequest)
			return
		}
		for _, of := range got.ResourceSpans {
			for _, in := range of.ScopeSpans {
				for _, s := range in.Spans {
					spans <- s
				}
			}
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	s, err := startServer(memory + fmt.Sprintf(`
	serve: traces: {endpoint: %q, protocol: "http/protobuf", sampling: 0}`, collector.URL))
	if err != nil {
		t.Fatal(err)
	}
	const of, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	var reply *http.Response
	client := clientOf(s.url, "none", 0)
	chat, err := client.Chat.Completions.New(context.Background(), ask("Name a colour."),
		option.WithHeader("traceparent", "00-"+of+"-"+parent+"-01"), option.WithResponseInto(&reply))
	if err != nil {
		t.Fatal(err)
	}
	span := <-spans
	if span.Name != "llm_request" || hex.EncodeToString(span.TraceId) != of || hex.EncodeToString(span.ParentSpanId) != parent {
		t.Errorf("%v", span)
	}
	if got, want := reply.Header.Get("Traceresponse"), "00-"+of+"-"+hex.EncodeToString(span.SpanId)+"-01"; got != want {
		t.Errorf("traceresponse %q, want %q", got, want)
	}
	var names, phases []string
	for _, a := range span.Attributes {
		if a.Key == "gen_ai.request.id" && a.Value.GetStringValue() != chat.ID || a.Key == "gen_ai.usage.completion_tokens" && a.Value.GetIntValue() != chat.Usage.CompletionTokens {
			t.Errorf("%v, the reply has %s and %d tokens", a, chat.ID, chat.Usage.CompletionTokens)
		}
		if strings.HasPrefix(a.Key, "gen_ai.") {
			names = append(names, strings.TrimPrefix(a.Key, "gen_ai."))
		}
	}
	for _, e := range span.Events {
		phases = append(phases, e.Name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "latency.e2e latency.time_in_model_decode latency.time_in_model_inference latency.time_in_model_prefill latency.time_in_queue latency.time_to_first_token "+
		"request.id request.max_tokens request.n request.temperature request.top_p response.model usage.completion_tokens usage.prompt_tokens" {
		t.Errorf("attributes %s", got)
	}
	if got := strings.Join(phases, " "); got != "queued scheduled first_token finished" {
		t.Errorf("phases %s", got)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}
