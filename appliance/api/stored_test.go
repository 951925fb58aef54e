package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/appliance/responses"
	"vapp.dev/engine"
)

func openStore(t *testing.T, path string) *responses.Store {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "responses.db")
	}
	store, err := responses.Open(responses.Config{
		Path: path, Limits: responses.Limits{MaxAge: time.Hour, MaxBytes: 1 << 20}, Interrupted: openai.InterruptedResponse,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// storingServer returns a server that stores responses.
func storingServer(t *testing.T, m *chattest.Model, set Settings) (*Server, *responses.Store) {
	t.Helper()
	c := testConfig(m)
	c.Responses = openStore(t, "")
	s := New(c, set)
	t.Cleanup(s.Close)
	return s, c.Responses
}

// gated is an engine whose replies consist of the texts sent on say, and end when say is
// closed.
type gated struct {
	say     chan string
	started chan struct{} // receives a value for each request
	mu      sync.Mutex
	prompts []string
}

func newGated() *gated { return &gated{say: make(chan string), started: make(chan struct{}, 16)} }

func (g *gated) Submit(_ context.Context, r engine.Request) ([]*engine.Stream, error) {
	gone := make(chan struct{})
	st, push := engine.NewStream(r.ID, sync.OnceFunc(func() { close(gone) }))
	var b strings.Builder
	for _, id := range r.Prompt {
		b.WriteByte(byte(id))
	}
	g.mu.Lock()
	g.prompts = append(g.prompts, b.String())
	g.mu.Unlock()
	go func() {
		for {
			select {
			case text, more := <-g.say:
				if !more {
					push(engine.Event{Token: chattest.EOS, Finish: engine.FinishStop, StopToken: -1})
					return
				}
				for _, c := range []byte(text) {
					push(engine.Event{Token: int32(c), StopToken: -1})
				}
			case <-gone:
				push(engine.Event{Token: -1, Finish: engine.FinishAbort, StopToken: -1})
				return
			}
		}
	}()
	g.started <- struct{}{}
	return []*engine.Stream{st}, nil
}

// gatedServer returns an HTTP server with a gated engine.
func gatedServer(t *testing.T, path string) (*httptest.Server, *Server, *gated, *responses.Store) {
	t.Helper()
	g, store := newGated(), openStore(t, path)
	cfg := chattest.Config(&chattest.Model{})
	cfg.Engine = g
	c := testConfig(&chattest.Model{})
	c.State, c.Responses = &state{chat.New(cfg), "ready"}, store
	s := New(c, testSettings())
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	t.Cleanup(s.Close)
	return h, s, g, store
}

// call sends a request and returns the whole reply.
func call(t *testing.T, h *httptest.Server, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, h.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b strings.Builder
	if _, err := fmt.Fprint(&b, readAll(t, resp)); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b.String()
}

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := resp.Body.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return b.String()
		}
	}
}

// status returns the status of a response.
func status(t *testing.T, body string) (id, status string) {
	t.Helper()
	var o struct{ ID, Status string }
	if err := json.Unmarshal([]byte(body), &o); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return o.ID, o.Status
}

// until polls a response until it has a status, for at most a minute.
func until(t *testing.T, h *httptest.Server, id, want string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		code, body := call(t, h, "GET", "/v1/responses/"+id, "")
		if code != 200 {
			t.Fatalf("response %s: got %d %s, want 200", id, code, body)
		}
		_, got := status(t, body)
		if got == want {
			return body
		}
		if time.Now().After(deadline) {
			t.Fatalf("response %s: got status %s after a minute, want %s: %s", id, got, want, body)
		}
	}
}

func TestBackground(t *testing.T) {
	h, _, g, _ := gatedServer(t, "")
	code, body := call(t, h, "POST", "/v1/responses", `{"input":"hi","background":true}`)
	id, got := status(t, body)
	if code != 200 || got != "queued" || !strings.Contains(body, `"background":true`) {
		t.Fatalf("got %d %s, want 200 with a queued background response", code, body)
	}
	if code, body := call(t, h, "POST", "/v1/responses", `{"input":"x","previous_response_id":"`+id+`"}`); code != 400 || !strings.Contains(body, "has not ended yet") {
		t.Fatalf("got %d %s, want 400 since the previous response runs", code, body)
	}
	g.say <- "Hel"
	until(t, h, id, "in_progress")
	close(g.say)
	if body := until(t, h, id, "completed"); !strings.Contains(body, `"text":"Hel"`) {
		t.Fatalf("got %s, want the text Hel", body)
	}
	// Cancelling a completed response does not change it.
	if code, body := call(t, h, "POST", "/v1/responses/"+id+"/cancel", ""); code != 200 || !strings.Contains(body, `"completed"`) {
		t.Fatalf("cancel after the end: got %d %s, want 200 with status completed", code, body)
	}
	if code, body := call(t, h, "GET", "/v1/responses/"+id+"?stream=true", ""); code != 400 || !strings.Contains(body, "no stream to continue") {
		t.Fatalf("got %d %s, want 400 since the response was not streamed", code, body)
	}
}

func TestCancel(t *testing.T) {
	h, s, g, _ := gatedServer(t, "")
	_, body := call(t, h, "POST", "/v1/responses", `{"input":"hi","background":true}`)
	id, _ := status(t, body)
	g.say <- "Hel"
	until(t, h, id, "in_progress")
	code, body := call(t, h, "POST", "/v1/responses/"+id+"/cancel", "")
	if _, got := status(t, body); code != 200 || got != "cancelled" || !strings.Contains(body, `"text":"Hel"`) {
		t.Fatalf("cancel: got %d %s, want 200 with status cancelled and the text Hel", code, body)
	}
	if n := s.InFlight(); n != 0 {
		t.Errorf("%d requests are open", n)
	}
	if code, again := call(t, h, "POST", "/v1/responses/"+id+"/cancel", ""); code != 200 || again != body {
		t.Fatalf("cancel again: got %d %s, want 200 %s", code, again, body)
	}
	if code, body := call(t, h, "DELETE", "/v1/responses/"+id, ""); code != 200 || body != `{"id":"`+id+`","object":"response","deleted":true}` {
		t.Fatalf("delete: got %d %s, want 200 and the deletion", code, body)
	}
	if code, _ := call(t, h, "GET", "/v1/responses/"+id, ""); code != 404 {
		t.Fatalf("after the deletion: got %d, want 404", code)
	}
}

// TestFollow checks that any client can read the events of a background response from
// any event on, while it runs and afterwards, also when its first reader disconnects.
func TestFollow(t *testing.T) {
	h, _, g, _ := gatedServer(t, "")
	ctx, leave := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "POST", h.URL+"/v1/responses", strings.NewReader(`{"input":"hi","background":true,"stream":true}`))
	r.Header.Set("Content-Type", "application/json")
	first, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	<-g.started
	leave()
	first.Body.Close()
	g.say <- "Hel"
	until(t, h, "resp_id1", "in_progress")
	live := make(chan string, 2)
	for _, query := range []string{"?stream=true", "?stream=true&starting_after=4"} {
		resp, err := http.Get(h.URL + "/v1/responses/resp_id1" + query)
		if err != nil {
			t.Fatal(err)
		}
		go func() { live <- readAll(t, resp) }()
		if query == "?stream=true" {
			g.say <- "lo"
		}
	}
	close(g.say)
	until(t, h, "resp_id1", "completed")
	a, b := <-live, <-live
	if len(a) < len(b) {
		a, b = b, a
	}
	_, whole := call(t, h, "GET", "/v1/responses/resp_id1?stream=true", "")
	_, part := call(t, h, "GET", "/v1/responses/resp_id1?stream=true&starting_after=4", "")
	if a != whole || b != part {
		t.Errorf("live %s\nand %s\nafterwards %s\nand %s", a, b, whole, part)
	}
	if !strings.HasPrefix(part, "event: response.content_part.added\ndata: {\"type\":\"response.content_part.added\",\"sequence_number\":4") &&
		!strings.Contains(strings.SplitN(part, "\n\n", 2)[0], `"sequence_number":5`) || !strings.HasSuffix(whole, part) {
		t.Errorf("behind 4: %s", part)
	}
	for _, kind := range []string{"created", "queued", "in_progress", "completed"} {
		if n := strings.Count(whole, "event: response."+kind+"\n"); n != 1 {
			t.Errorf("%d events %s", n, kind)
		}
	}
	// OpenAI's Go client sends stream in the body.
	if _, got := call(t, h, "GET", "/v1/responses/resp_id1?starting_after=4", `{"stream":true}`); got != part {
		t.Errorf("asked for in a body: %s", got)
	}
	if code, got := call(t, h, "GET", "/v1/responses/resp_id1", `{"stream":7}`); code != 400 {
		t.Errorf("asked for in a wrong body: %s", got)
	}
	if _, none := call(t, h, "GET", "/v1/responses/resp_id1?stream=true&starting_after=99", ""); none != "" {
		t.Errorf("behind the end: %q", none)
	}
}

// TestStopped checks that a response which runs when the server stops is stored as
// failed, by the server itself or by the next one.
func TestStopped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.db")
	h, s, g, store := gatedServer(t, path)
	_, body := call(t, h, "POST", "/v1/responses", `{"input":"hi","background":true}`)
	id, _ := status(t, body)
	<-g.started
	s.Close()
	if _, body := call(t, h, "GET", "/v1/responses/"+id, ""); !strings.Contains(body, `"status":"failed"`) || !strings.Contains(body, "server was stopped") {
		t.Errorf("got %s, want status failed since the server was stopped", body)
	}
	rec := responses.Record{ID: "resp_x", Background: true, Running: true, Body: json.RawMessage(`{"id":"resp_x","status":"queued","error":null}`)}
	if err := store.Put(responses.Owner{}, rec); err != nil {
		t.Fatal(err)
	}
	store.Close()
	h, _, _, _ = gatedServer(t, path)
	if _, body := call(t, h, "GET", "/v1/responses/resp_x", ""); !strings.Contains(body, `"status":"failed"`) || !strings.Contains(body, "server was stopped") {
		t.Errorf("got %s, want status failed since the server was stopped", body)
	}
}

// TestTwoKeys checks that no route gives a key access to another key's responses.
func TestTwoKeys(t *testing.T) {
	set := testSettings()
	set.Keys = []string{"one", "two"}
	s, _ := storingServer(t, &chattest.Model{}, set)
	ask := func(key, method, path, body string) (int, string) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	_, body := ask("one", "POST", "/v1/responses", `{"input":"secret words"}`)
	id, _ := status(t, body)
	_, list := ask("one", "GET", "/v1/responses/"+id+"/input_items", "")
	var page struct {
		First string `json:"first_id"`
	}
	if json.Unmarshal([]byte(list), &page) != nil || page.First == "" {
		t.Fatalf("got the list %s, want one with first_id", list)
	}
	for _, r := range [][3]string{
		{"GET", "/v1/responses/" + id, ""}, {"GET", "/v1/responses/" + id + "/input_items", ""}, {"GET", "/v1/responses/" + id + "?stream=true", ""},
		{"POST", "/v1/responses/" + id + "/cancel", ""}, {"DELETE", "/v1/responses/" + id, ""},
		{"POST", "/v1/responses", `{"input":"x","previous_response_id":"` + id + `"}`},
		{"POST", "/v1/responses", `{"input":[{"type":"item_reference","id":"` + page.First + `"}]}`},
	} {
		if code, body := ask("two", r[0], r[1], r[2]); code != 404 || strings.Contains(body, "secret words") {
			t.Errorf("%s %s %s: %d %s", r[0], r[1], r[2], code, body)
		}
	}
	if code, body := ask("one", "POST", "/v1/responses", `{"input":[{"type":"item_reference","id":"`+page.First+`"}],"previous_response_id":"`+id+`"}`); code != 200 {
		t.Errorf("%d %s", code, body)
	}
}

// TestStoreFails checks that a reply that cannot be stored is sent with store false.
func TestStoreFails(t *testing.T) {
	s, store := storingServer(t, &chattest.Model{}, testSettings())
	send := func(body string) string {
		r := httptest.NewRequest("POST", "/v1/responses", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Body.String()
	}
	store.SetLimits(responses.Limits{MaxAge: time.Hour, MaxBytes: 100})
	for _, body := range []string{`{"input":"hi"}`, `{"input":"hi","stream":true}`} {
		got := send(body)
		if last := got[strings.LastIndex(got, `"object":"response"`):]; !strings.Contains(last, `"store":false`) || !strings.Contains(last, `"status":"completed"`) {
			t.Errorf("%s", got)
		}
	}
	if got := send(`{"input":"hi","background":true}`); !strings.Contains(got, "InternalServerError") {
		t.Errorf("in the background: %s", got)
	}
	if n := s.InFlight(); n != 0 {
		t.Errorf("%d requests are open", n)
	}
}

// TestOneIDTwice checks that a client which sends a request id twice gets two responses.
func TestOneIDTwice(t *testing.T) {
	s, store := storingServer(t, &chattest.Model{}, testSettings())
	var ids []string
	for range 2 {
		r := httptest.NewRequest("POST", "/v1/responses", strings.NewReader(`{"input":"hi"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Request-Id", "mine")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		id, _ := status(t, w.Body.String())
		ids = append(ids, id)
		if _, err := store.Get(responses.Owner{}, id); err != nil {
			t.Error(err)
		}
	}
	if ids[0] != "resp_mine" || ids[1] == ids[0] {
		t.Errorf("%q", ids)
	}
	if _, err := store.Get(responses.Owner{1}, ids[0]); !errors.Is(err, responses.ErrNotFound) {
		t.Error(err)
	}
}
