package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine/grammar"
	"vapp.dev/engine/tokenizer"
)

// failing is a grammar compiler that always fails. It records the clients that called it.
type failing struct {
	kind    tokenizer.Kind
	clients []string
}

func (f *failing) Compile(ctx context.Context, _ grammar.Spec) (*grammar.Grammar, error) {
	f.clients = append(f.clients, chat.Client(ctx))
	return nil, &tokenizer.Error{Kind: f.kind, Msg: "too many open files"}
}

// childServer serves a model whose child processes fail with f.kind.
func childServer(t *testing.T, f *failing, set Settings) *Server {
	t.Helper()
	m := chattest.Config(&chattest.Model{})
	m.Grammars = f
	m.Sandbox = func(ctx context.Context, _ string) (chat.Template, error) {
		f.clients = append(f.clients, chat.Client(ctx))
		return nil, &tokenizer.TemplateError{Kind: f.kind, Msg: "too many open files"}
	}
	c := testConfig(&chattest.Model{})
	c.State, c.Responses = &state{chat.New(m), "ready"}, openStore(t, "")
	set.Chat.TrustRequestChatTemplate = true
	s := New(c, set)
	t.Cleanup(s.Close)
	return s
}

// childRequests lists requests that need a child process.
var childRequests = []struct{ path, body string }{
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_object"}}`},
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"chat_template":"x"}`},
	{"/v1/completions", `{"prompt":"x","structured_outputs":{"regex":"a"}}`},
	{"/v1/responses", `{"input":"hi","text":{"format":{"type":"json_schema","name":"a","schema":{}}}}`},
	{"/v1/responses", `{"input":"hi","background":true,"text":{"format":{"type":"json_schema","name":"a","schema":{}}}}`},
	{"/v1/messages", `{"max_tokens":9,"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"any"}}`},
}

// A child process that cannot run now gives 503 with Retry-After; one that the system
// does not support gives 501. Both have the protocol's form.
func TestChildCannotRun(t *testing.T) {
	set := testSettings()
	set.Chat.Tools, set.Chat.AutoToolChoice = "hermes", true
	for kind, want := range map[tokenizer.Kind]int{tokenizer.KindUnavailable: 503, tokenizer.KindUnsupported: 501} {
		s := childServer(t, &failing{kind: kind}, set)
		for _, c := range childRequests {
			w := post(s, c.path, c.body)
			shape := `"type":"ServiceUnavailableError"`
			if c.path == "/v1/messages" {
				shape = `{"type":"error","error":{"type":"`
			}
			switch {
			case w.Code != want:
				t.Errorf("%s %.90s: %d %s", c.path, c.body, w.Code, w.Body)
			case want == 503 && (w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), shape)):
				t.Errorf("%s %.90s: %v %s", c.path, c.body, w.Header(), w.Body)
			}
		}
	}
}

// The queues of child processes identify a client by its key, or by its address on a
// server without keys, also for background responses.
func TestClientOfRequest(t *testing.T) {
	set := testSettings()
	set.Chat.Tools, set.Chat.AutoToolChoice = "hermes", true
	f := &failing{kind: tokenizer.KindUnavailable}
	s := childServer(t, f, set)
	for _, c := range childRequests {
		f.clients = nil
		if post(s, c.path, c.body); len(f.clients) != 1 || f.clients[0] != "192.0.2.1" {
			t.Errorf("%s %.90s: clients %q", c.path, c.body, f.clients)
		}
	}
	set.Keys = []string{"one", "two"}
	s.SetSettings(set)
	f.clients = nil
	for _, key := range []string{"one", "two", "one"} {
		r := httptest.NewRequest(http.MethodPost, childRequests[0].path, strings.NewReader(childRequests[0].body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+key)
		s.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}
	if c := f.clients; len(c) != 3 || c[0] != c[2] || c[0] == c[1] || c[0] == "" || strings.Contains(c[0], "one") {
		t.Errorf("clients of keys: %q", c)
	}
}
