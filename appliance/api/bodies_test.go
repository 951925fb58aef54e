package api

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"vapp.dev/appliance/api/anthropic"
	"vapp.dev/appliance/api/budget"
	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/api/rawjson"
	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

// withBody returns the paths of the POST routes that have a body.
func withBody(s *Server) (paths []string) {
	for _, r := range s.table() {
		if r.methods == "POST" && len(r.operation.Request) > 0 {
			paths = append(paths, r.path)
		}
	}
	return paths
}

// client is a connection on which a test can write any bytes.
type client struct {
	*net.TCPConn
	t *testing.T
}

func dial(t *testing.T, srv *httptest.Server) client {
	t.Helper()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // so that a failing test ends
	return client{c.(*net.TCPConn), t}
}

// head writes the header of a POST request with a body of the given length.
func (c client) head(path string, length int) {
	c.t.Helper()
	c.send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, length))
}

func (c client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// reply reads one reply.
func (c client) reply() (*http.Response, string) {
	c.t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return r, string(b)
}

// busy returns a server that allows one open request, and is answering one until free
// is called.
func busy(t *testing.T) (s *Server, srv *httptest.Server, free func()) {
	m, started, release := blockedModel()
	answered := make(chan struct{})
	set := testSettings()
	set.MaxConcurrent, set.MaxBodyBytes = 1, 16<<20
	s = testServer(m, set)
	srv = httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	go func() {
		post(s, "/v1/chat/completions", hello)
		close(answered)
	}()
	<-started
	return s, srv, func() {
		release()
		<-answered
	}
}

// TestAdmissionFirst checks that every route refuses a request beyond
// maxConcurrentRequests before it reads the body.
func TestAdmissionFirst(t *testing.T) {
	s, srv, free := busy(t)
	for _, path := range withBody(s) {
		c := dial(t, srv)
		c.head(path, 15<<20)
		r, body := c.reply()
		if r.StatusCode != 503 || !r.Close || r.Header.Get("Retry-After") == "" || !strings.Contains(body, "requests are open") {
			t.Errorf("%s: %s %v %s", path, r.Status, r.Header, body)
		}
	}
	free()
	for _, path := range withBody(s) {
		for _, body := range []string{`{`, `{}`, hello, `{"prompt":"x"}`, `{"prompt":"x","input":"x","tokens":[1],"max_tokens":1,"messages":[{"role":"user","content":"x"}]}`} {
			if w := post(s, path, body); w.Code == 503 {
				t.Errorf("%s %s: %d %s", path, body, w.Code, w.Body)
			}
		}
	}
	if n := s.InFlight(); n != 0 {
		t.Errorf("%d requests are open after all have ended", n)
	}
}

// TestRefusedWhileSending checks that a client which sends a whole large body before it
// reads gets the error reply, not a connection reset.
func TestRefusedWhileSending(t *testing.T) {
	_, srv, free := busy(t)
	defer free()
	c := dial(t, srv)
	c.head("/v1/completions", 8<<20)
	c.send(strings.Repeat(" ", 8<<20))
	if r, body := c.reply(); r.StatusCode != 503 || !strings.Contains(body, "requests are open") {
		t.Errorf("%s %s", r.Status, body)
	}
}

// TestSlowBodyEndedFirst checks that a slow body is ended with 408 while a large body
// waits for the budget.
func TestSlowBodyEndedFirst(t *testing.T) {
	s := testServer(&chattest.Model{}, testSettings()) // bodies of 1 MiB
	srv := httptest.NewServer(s.Handler())
	defer srv.Close()
	raw := s.bodies.Load().large.raw
	slow := dial(t, srv)
	slow.head("/v1/chat/completions", 1<<20)
	slow.send(strings.Repeat(" ", firstBytes+1))
	eventually(t, "bodies being read", func() int { _, n, _ := raw.Usage(); return n }, 1)
	fast := dial(t, srv)
	fast.head("/v1/chat/completions", 1<<19)
	fast.send(hello + strings.Repeat(" ", 1<<19-len(hello)))
	eventually(t, "waiting claims", func() int { _, _, n := raw.Usage(); return n }, 1)
	if w := post(s, "/v1/chat/completions", hello); w.Code != 200 {
		t.Errorf("a small body meanwhile: %d %s", w.Code, w.Body)
	}
	raw.EndSlow(time.Now().Add(time.Hour))
	if r, body := slow.reply(); r.StatusCode != 408 || !r.Close || !strings.Contains(body, "too slowly") {
		t.Errorf("slow: %s %s", r.Status, body)
	}
	if r, body := fast.reply(); r.StatusCode != 200 {
		t.Errorf("fast: %s %s", r.Status, body)
	}
}

// TestBudgetReturns checks that every request releases its budget, also after errors.
func TestBudgetReturns(t *testing.T) {
	s := testServer(&chattest.Model{Say: func(r engine.Request, _ int) chattest.Script {
		if r.Params.MaxTokens == 7 {
			panic("a defect")
		}
		return chattest.Script{Text: "x"}
	}}, testSettings())
	pad := strings.Repeat(" ", smallBody)
	for _, path := range withBody(s) {
		for _, body := range []string{
			"", "{", "{}", hello, hello + pad, `{"prompt":"x"}` + pad, `{"messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":9}`,
			`{"messages":[{"role":"user","content":"hi"}],"max_tokens":7}`, strings.Repeat(" ", 1<<20+1),
			"{" + strings.Repeat(`"a":"b",`, rawjson.MaxValues/2-1) + `"c":"d","e":"f"}`,
		} {
			post(s, path, body)
			r := httptest.NewRequest("POST", path, io.MultiReader(strings.NewReader(body))) // of no known length
			r.Header.Set("Content-Type", "application/json")
			s.Handler().ServeHTTP(httptest.NewRecorder(), r)
			for _, b := range []*budget.Budget{s.bodies.Load().small.raw, s.bodies.Load().small.decoded, s.bodies.Load().large.raw, s.bodies.Load().large.decoded} {
				if used, reading, waiting := b.Usage(); used != 0 || reading != 0 || waiting != 0 || s.InFlight() != 0 {
					t.Fatalf("%s %.40s: %d bytes are used, %d bodies read, %d wait, %d open", path, body, used, reading, waiting, s.InFlight())
				}
			}
		}
	}
}

// TestUnknownLength checks that bodies of unknown length have the same limit as others.
func TestUnknownLength(t *testing.T) {
	s := testServer(&chattest.Model{}, testSettings())
	for _, n := range []int{len(hello), firstBytes, firstBytes + 1, smallBody, smallBody + 1, 1 << 20, 1<<20 + 1} {
		r := httptest.NewRequest("POST", "/v1/chat/completions", io.MultiReader(strings.NewReader(hello+strings.Repeat(" ", n-len(hello)))))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if want := map[bool]int{true: 413, false: 200}[n > 1<<20]; w.Code != want {
			t.Errorf("%d bytes: %d %s", n, w.Code, w.Body)
		}
	}
}

// endless returns a server of a model with a huge context, whose replies do not end.
func endless(m *chattest.Model) *Server {
	cfg, serve := chattest.Config(m), testConfig(m)
	cfg.ModelLen = 1 << 30
	serve.State = &state{chat.New(cfg), "ready"}
	set := testSettings()
	set.LoadAdapters = true // so that the routes of adapters read bodies
	return New(serve, set)
}

// TestHalfClosed checks that a client which closes its side of the connection gets an
// error of its protocol and "Connection: close", after half a body and after a whole
// request.
func TestHalfClosed(t *testing.T) {
	m := &chattest.Model{Say: func(engine.Request, int) chattest.Script { return chattest.Script{Text: "abc ", Endless: true} }}
	s := endless(m)
	srv := httptest.NewServer(s.Handler())
	defer srv.Close()
	shaped := func(what string, r *http.Response, body string, status int) {
		t.Helper()
		if r.StatusCode != status || !r.Close || !strings.Contains(body, `"error":{`) {
			t.Errorf("%s: %s %v %q", what, r.Status, r.Header, body)
		}
	}
	generates := []string{"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/chat/completions/batch", "/inference/v1/generate", "/invocations"}
	for _, path := range withBody(s) {
		if slices.Contains([]string{"/v1/embeddings", "/pooling", "/classify", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank"}, path) {
			continue // 501 before anything is read
		}
		c := dial(t, srv)
		c.head(path, 1000)
		c.send(`{"model":`)
		_ = c.CloseWrite()
		r, body := c.reply()
		shaped(path+", half a body", r, body, 400)
		if !slices.Contains(generates, path) {
			continue
		}
		body = `{"prompt":"x","max_tokens":100000000,"input":"x","token_ids":[1],"sampling_params":{"max_tokens":100000000},"messages":[{"role":"user","content":"x"}]}`
		switch {
		case strings.HasSuffix(path, "responses"):
			body = `{"input":"x","max_output_tokens":100000000}`
		case strings.HasSuffix(path, "batch"):
			body = `{"messages":[[{"role":"user","content":"x"}]],"max_tokens":100000000}`
		}
		c = dial(t, srv)
		c.head(path, len(body))
		c.send(body)
		_ = c.CloseWrite()
		r, body = c.reply()
		shaped(path+", a whole request", r, body, 499)
	}
}

// TestHalfClosedStream checks that a stream ends with an error when its client closes
// its side of the connection.
func TestHalfClosedStream(t *testing.T) {
	m := &chattest.Model{Say: func(engine.Request, int) chattest.Script { return chattest.Script{Text: "abc ", Endless: true} }}
	s := endless(m)
	srv := httptest.NewServer(s.Handler())
	defer srv.Close()
	for path, last := range map[string]string{
		"/v1/chat/completions": `data: {"error":`, "/v1/completions": `data: {"error":`, "/v1/messages": "event: error", "/v1/responses": "event: error",
	} {
		body := `{"prompt":"x","stream":true,"max_tokens":100000000,"messages":[{"role":"user","content":"x"}]}`
		if path == "/v1/responses" {
			body = `{"input":"x","stream":true,"max_output_tokens":100000000}`
		}
		c := dial(t, srv)
		c.head(path, len(body))
		c.send(body)
		_ = c.CloseWrite()
		if r, got := c.reply(); got == "" || r.StatusCode == 200 && !strings.Contains(got, last) || r.StatusCode != 200 && r.StatusCode != 499 {
			t.Errorf("%s: %s … %q", path, r.Status, got[max(0, len(got)-400):])
		}
	}
}

// TestDecodedCost checks that decoding allocates at most a measured share of the bytes
// that are reserved for it. Only messages exceed the reservation, by maps of members
// that are freed after each object.
func TestDecodedCost(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates too")
	}
	const n = 1 << 20
	fill := func(head, one, tail string) string {
		var b bytes.Buffer
		b.WriteString(head)
		values := rawjson.Values([]byte(one))
		for i := 0; b.Len() < n-len(one)-len(tail) && i*values < rawjson.MaxValues-100; i++ {
			b.WriteString(one)
		}
		return strings.TrimSuffix(b.String(), ",") + tail
	}
	text := fill("", "1234567890", "")
	bodies := map[string]struct {
		text string
		part float64
	}{
		"digits":   {`{"max_tokens":1,"messages":[{"role":"user","content":"` + text + `"}],"prompt":"` + `"}`, 0.4},
		"prompt":   {`{"prompt":"` + text + `","input":"","messages":[]}`, 0.4},
		"input":    {`{"input":"` + text + `"}`, 0.75},
		"escapes":  {`{"max_tokens":1,"prompt":"x","messages":[{"role":"user","content":"` + fill("", `\ud83d\ude00\n`, "") + `"}]}`, 0.4},
		"tokens":   {fill(`{"prompt":[`, "1,", `],"messages":[]}`), 0.75},
		"lists":    {fill(`{"prompt":[`, `[1],`, `],"messages":[]}`), 0.45},
		"texts":    {fill(`{"prompt":[`, `"",`, `]}`), 0.43},
		"messages": {fill(`{"max_tokens":1,"messages":[`, `{"role":"user","content":""},`, `]}`), 1.8},
		"parts":    {fill(`{"max_tokens":1,"messages":[{"role":"user","content":[`, `"",`, `]}]}`), 0.7},
		"kwargs":   {fill(`{"prompt":"x","messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{`, `"a":1,`, `}}`), 0.02},
		"unknown":  {fill(`{"prompt":"x","messages":[],"zzz":[`, `[[]],`, `]}`), 0.02},
		"tools":    {fill(`{"prompt":"x","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"enum":[`, `0,`, `]}}}]}`), 0.4},
	}
	decoders := map[string]func([]byte){
		"chat":       func(b []byte) { _, _ = openai.DecodeChat(b) },
		"completion": func(b []byte) { _, _ = openai.DecodeCompletion(b) },
		"responses": func(b []byte) {
			if r, err := openai.DecodeResponses(b); err == nil {
				_ = r.Resolve(nil, nil)
			}
		},
		"messages":  func(b []byte) { _, _ = anthropic.Decode(b) },
		"tokenize":  func(b []byte) { _, _ = openai.DecodeTokenize(b) },
		"embedding": func(b []byte) { _, _ = openai.DecodeEmbedding(b) },
	}
	for name, body := range bodies {
		for route, decode := range decoders {
			b := []byte(body.text)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			decode(b)
			runtime.ReadMemStats(&after)
			reserved := decodedBytes*len(b) + decodedValue*rawjson.Values(b)
			most := uint64(body.part*float64(reserved)) + 64<<10
			if got := after.TotalAlloc - before.TotalAlloc; got > most {
				t.Errorf("%s as %s: %d bytes of body, %d values: %d allocated, %d reserved, at most %d expected", name, route, len(b), rawjson.Values(b), got, reserved, most)
			}
		}
	}
}

// TestTooManySequences checks that a request with more sequences than the queue can hold
// gets 400, not 503.
func TestTooManySequences(t *testing.T) {
	set := testSettings()
	set.Chat.MaxSequences = 6
	s := testServer(&chattest.Model{Say: func(engine.Request, int) chattest.Script { return chattest.Script{Text: "x"} }}, set)
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/completions", `{"prompt":["a","b","c"],"n":2}`, 200, ""},
		{"/v1/completions", `{"prompt":["a","b","c","d"],"n":2}`, 400, "4 prompts times n=2 are 8 sequences, and the server holds at most 6"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"n":7}`, 400, "n=7 are 7 sequences"},
		{"/v1/chat/completions/batch", `{"messages":[` + strings.TrimSuffix(strings.Repeat(`[{"role":"user","content":"x"}],`, 7), ",") + `]}`, 400, "7 prompts"},
	} {
		if w := post(s, c.path, c.body); w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s", c.body, w.Code, w.Body)
		}
	}
}
