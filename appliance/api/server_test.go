package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

const hello = `{"messages":[{"role":"user","content":"hi"}]}`

func post(s *Server, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

func get(s *Server, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func TestNotReady(t *testing.T) {
	st := &state{nil, "loading weights"}
	s := New(Config{State: st, Log: slog.New(slog.DiscardHandler)}, testSettings())
	for path, want := range map[string]int{
		"/livez": 200, "/readyz": 503, "/health": 503, "/v1/models": 503, "/version": 200, "/load": 200, "/metrics": 404,
	} {
		w := get(s, path)
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
		if want == 503 && !strings.Contains(w.Body.String(), "loading weights") {
			t.Errorf("%s: got no phase in %s", path, w.Body)
		}
	}
	w := post(s, "/v1/chat/completions", hello)
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"type":"ServiceUnavailableError"`) {
		t.Errorf("chat: %d %s", w.Code, w.Body)
	}
	st.svc, st.phase = chattest.Service(&chattest.Model{}), "ready"
	if w := post(s, "/v1/chat/completions", hello); w.Code != 200 {
		t.Errorf("when ready: %d %s", w.Code, w.Body)
	}
}

// TestWhy checks that all clients get the phase, and those that may read guarded routes
// also the reason.
func TestWhy(t *testing.T) {
	set := testSettings()
	s := New(Config{State: &state{nil, "failed"}, Why: func() string { return "a kernel failed" }, Log: slog.New(slog.DiscardHandler)}, set)
	const full, withheld = `{"phase":"failed","why":"a kernel failed"}`, `{"phase":"failed"}`
	ask := func(path, key, want string) {
		t.Helper()
		r := httptest.NewRequest("GET", path, nil)
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		w := httptest.NewRecorder()
		if s.Handler().ServeHTTP(w, r); w.Body.String() != want {
			t.Errorf("%s with key %q: %d %s, want %s", path, key, w.Code, w.Body, want)
		}
	}
	ask("/readyz", "", full) // without keys nothing is guarded
	set.Keys = []string{"k"}
	s.SetSettings(set)
	for _, path := range []string{"/readyz", "/livez"} {
		ask(path, "", withheld)
		ask(path, "other", withheld)
		ask(path, "k", full)
	}
}

// TestDisconnect checks that the engine cancels all choices of a request when its client
// disconnects, whether the reply is streamed or not.
func TestDisconnect(t *testing.T) {
	for _, stream := range []bool{true, false} {
		for _, n := range []int{1, 3} {
			ctx, leave := context.WithCancel(context.Background())
			m := &chattest.Model{Say: func(engine.Request, int) chattest.Script {
				if !stream {
					leave()
				}
				return chattest.Script{Text: "abc ", Endless: true}
			}}
			cfg := chattest.Config(m)
			cfg.ModelLen = 1 << 30 // an endless reply
			s := New(Config{State: &state{chat.New(cfg), "ready"}, Log: slog.New(slog.DiscardHandler)}, testSettings())
			srv := httptest.NewServer(s.Handler())
			body := fmt.Sprintf(`{"messages":[{"role":"user","content":"x"}],"stream":%v,"n":%d}`, stream, n)
			r, _ := http.NewRequestWithContext(ctx, "POST", srv.URL+"/v1/chat/completions", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			if resp, err := http.DefaultClient.Do(r); err == nil {
				_, _ = resp.Body.Read(make([]byte, 1))
				leave() // within the stream
				resp.Body.Close()
			}
			what := fmt.Sprintf("stream %v, n %d: ", stream, n)
			eventually(t, what+"cancelled choices", m.Cancelled, n)
			eventually(t, what+"open requests", s.InFlight, 0)
			srv.Close()
		}
	}
}

// TestSettingsChange checks that a running stream keeps its settings, and that the next
// request has all new ones.
func TestSettingsChange(t *testing.T) {
	m, started, release := blockedModel()
	set := testSettings()
	s := testServer(m, set)
	var old *httptest.ResponseRecorder
	var wg sync.WaitGroup
	wg.Go(func() { old = post(s, "/v1/completions", `{"prompt":"a","model":"also","stream":true}`) })
	<-started
	set.Chat.Models, set.Keys = []string{"new"}, []string{"k"}
	s.SetSettings(set)
	if w := get(s, "/v1/models"); w.Code != 401 {
		t.Errorf("without the new key: %d", w.Code)
	}
	release()
	wg.Wait()
	if old.Code != 200 || !strings.Contains(old.Body.String(), `"model":"also"`) || !strings.HasSuffix(old.Body.String(), "data: [DONE]\n\n") {
		t.Errorf("the stream that ran: %d %s", old.Code, old.Body)
	}
	r := httptest.NewRequest("GET", "/v1/models", nil)
	r.Header.Set("Authorization", "Bearer k")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	if !strings.Contains(w.Body.String(), `"id":"new"`) || strings.Contains(w.Body.String(), "also") {
		t.Errorf("models: %s", w.Body)
	}
}

func TestConcurrencyLimit(t *testing.T) {
	m, started, release := blockedModel()
	set := testSettings()
	set.MaxConcurrent = 1
	s := testServer(m, set)
	var wg sync.WaitGroup
	wg.Go(func() { post(s, "/v1/chat/completions", hello) })
	<-started
	if w := get(s, "/load"); w.Body.String() != `{"server_load":1}` {
		t.Errorf("load: %s", w.Body)
	}
	w := post(s, "/v1/completions", `{"prompt":"x"}`)
	if w.Code != 503 || !strings.Contains(w.Body.String(), "1 requests are open") {
		t.Errorf("over the limit: %d %s", w.Code, w.Body)
	}
	release()
	wg.Wait()
	if w := post(s, "/v1/completions", `{"prompt":"x"}`); w.Code != 200 {
		t.Errorf("afterwards: %d %s", w.Code, w.Body)
	}
}

// TestPanic checks that a panic fails one request only, and that the log has its stack.
func TestPanic(t *testing.T) {
	m := &chattest.Model{Say: func(engine.Request, int) chattest.Script { panic("boom at 0xc000123456") }}
	var out bytes.Buffer
	s := New(Config{State: &state{chattest.Service(m), "ready"}, Log: slog.New(slog.NewTextHandler(&out, nil))}, testSettings())
	w := post(s, "/v1/chat/completions", hello)
	if w.Code != 500 || !strings.Contains(w.Body.String(), `"type":"InternalServerError"`) || strings.Contains(w.Body.String(), "boom") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if !strings.Contains(out.String(), "boom") || !strings.Contains(out.String(), "TestPanic") {
		t.Errorf("log without the panic: %s", out.String())
	}
	if w := get(s, "/health"); w.Code != 200 || s.InFlight() != 0 {
		t.Errorf("afterwards: %d, %d in flight", w.Code, s.InFlight())
	}
}

func TestObservationAndAccessLog(t *testing.T) {
	var seen []Observation
	var out bytes.Buffer
	set := testSettings()
	set.AccessLog = true
	s := New(Config{
		State: &state{chattest.Service(&chattest.Model{}), "ready"}, Observe: func(o Observation) { seen = append(seen, o) },
		Log:     slog.New(slog.NewJSONHandler(&out, nil)),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "m 1\n") }),
	}, set)
	post(s, "/v1/chat/completions", hello)
	get(s, "/nothing")
	if w := get(s, "/metrics"); w.Body.String() != "m 1\n" {
		t.Errorf("metrics: %s", w.Body)
	}
	if len(seen) != 3 {
		t.Fatalf("%d observations", len(seen))
	}
	o := seen[0]
	if o.Method != "POST" || o.Handler != "/v1/chat/completions" || o.Status != 200 || o.In != int64(len(hello)) || o.Out < 100 || o.Duration <= 0 {
		t.Errorf("chat: %+v", o)
	}
	if o := seen[1]; o.Status != 404 || o.Handler != "" {
		t.Errorf("unknown path: %+v", o)
	}
	var line map[string]any
	first, _, _ := strings.Cut(out.String(), "\n")
	if err := json.Unmarshal([]byte(first), &line); err != nil || line["path"] != "/v1/chat/completions" || line["status"] != 200.0 {
		t.Errorf("access line: %s", first)
	}
}

func TestRoutes(t *testing.T) {
	s := New(Config{
		State: &state{}, Metrics: http.NotFoundHandler(), Reloads: http.NotFoundHandler(),
		Status: http.NotFoundHandler(), Drift: http.NotFoundHandler(), Page: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler),
	}, testSettings())
	var got []string
	for _, r := range s.Routes() {
		got = append(got, strings.Join(r.Methods, ",")+" "+r.Path)
	}
	want := []string{
		"GET /", "GET /admin/drift", "GET /admin/reloads", "GET /admin/status", "POST /classify", "POST /detokenize", "GET,HEAD /docs", "GET,HEAD /docs/oauth2-redirect", "GET /health", "POST /inference/v1/generate", "POST /invocations",
		"POST /is_scaling_elastic_ep", "GET /is_sleeping", "GET /livez", "GET /load",
		"GET /metrics", "GET /metrics/", "GET,HEAD /openapi.json", "GET,POST /ping", "POST /pooling", "GET /readyz", "GET,HEAD /redoc", "POST /rerank", "POST /score", "POST /sleep", "POST /tokenize", "POST /v1/chat/completions",
		"POST /v1/chat/completions/batch", "POST /v1/chat/completions/render", "POST /v1/completions", "POST /v1/completions/render",
		"POST /v1/embeddings", "POST /v1/load_lora_adapter", "POST /v1/messages", "POST /v1/messages/count_tokens", "GET /v1/models", "GET /v1/models/*", "POST /v1/rerank",
		"POST /v1/responses", "DELETE,GET /v1/responses/:id", "POST /v1/responses/:id/cancel", "GET /v1/responses/:id/input_items", "POST /v1/score", "POST /v1/unload_lora_adapter", "POST /v2/rerank", "GET /version", "POST /wake_up",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	paths := map[string]bool{}
	for _, r := range s.echo.Routes() {
		paths[r.Path] = true
	}
	for from, to := range instead {
		if paths[from] || !paths[to] {
			t.Errorf("a 404 of %s names %s: the first is a route: %v; the second: %v", from, to, paths[from], paths[to])
		}
	}
}

func TestGuardMetrics(t *testing.T) {
	set := testSettings()
	set.Keys = []string{"k"}
	cfg := Config{State: &state{}, Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), Log: slog.New(slog.DiscardHandler)}
	s := New(cfg, set)
	if w := get(s, "/metrics"); w.Code != 200 {
		t.Errorf("unguarded: %d", w.Code)
	}
	set.GuardMetrics = true
	s.SetSettings(set)
	for _, path := range []string{"/metrics", "/metrics/"} {
		if w := get(s, path); w.Code != 401 {
			t.Errorf("guarded %s: %d", path, w.Code)
		}
	}
}

// TestClientHangs checks that a client which reads nothing is disconnected after the
// write timeout, and that its request is cancelled.
func TestClientHangs(t *testing.T) {
	m := &chattest.Model{Say: func(engine.Request, int) chattest.Script {
		return chattest.Script{Text: strings.Repeat("x", 1000), Endless: true}
	}}
	cfg := chattest.Config(m)
	cfg.ModelLen = 1 << 30
	s := New(Config{State: &state{chat.New(cfg), "ready"}, Log: slog.New(slog.DiscardHandler)}, testSettings())
	set := testSettings()
	set.WriteTimeout = 50 * time.Millisecond
	s.SetSettings(set)
	srv := httptest.NewServer(s.Handler())
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"prompt":"x","stream":true,"max_tokens":1000000000}`
	_, err = io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "+
		"52\r\n\r\n"+body)
	if err != nil || len(body) != 52 {
		t.Fatalf("%v; the body has %d bytes, want 52", err, len(body))
	}
	eventually(t, "cancelled choices", m.Cancelled, 1)
}

// TestKeyOfMessages checks that the header X-Api-Key is accepted on the routes of
// Anthropic's protocol only, and that refusals there have its form.
func TestKeyOfMessages(t *testing.T) {
	set := testSettings()
	set.Keys = []string{"k"}
	s := New(Config{State: &state{}, Log: slog.New(slog.DiscardHandler)}, set)
	for _, x := range []struct {
		path, header, value string
		open                bool
	}{
		{messagesPath, "X-Api-Key", "k", true},
		{messagesPath + "/count_tokens", "X-Api-Key", "k", true},
		{messagesPath, "Authorization", "Bearer k", true},
		{messagesPath, "X-Api-Key", "wrong", false},
		{messagesPath, "X-Api-Key", "", false},
		{messagesPath, "Authorization", "Basic k", false},
		{messagesPath + "x", "X-Api-Key", "k", false},
		{"/v1/completions", "X-Api-Key", "k", false},
	} {
		r := httptest.NewRequest("POST", x.path, strings.NewReader(`{}`))
		r.Header.Set(x.header, x.value)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if got := w.Code != http.StatusUnauthorized; got != x.open {
			t.Errorf("%s with %s: %q: answered %d", x.path, x.header, x.value, w.Code)
		}
		if words := strings.Contains(w.Body.String(), "authentication_error"); !x.open && words != isMessages(x.path) {
			t.Errorf("%s is refused with %s", x.path, w.Body)
		}
	}
}
