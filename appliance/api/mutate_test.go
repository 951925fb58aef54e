package api

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"vapp.dev/tests/mutate"
)

var mutations = flag.Int("mutations", 1000, "number of requests that TestMutated sends; above 1000 also very large ones")

// faults records what a server logs at level error: panics and failed requests.
type faults struct {
	slog.Handler
	mu     sync.Mutex
	errors []string
}

func (f *faults) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

func (f *faults) Handle(_ context.Context, r slog.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	f.errors = append(f.errors, text)
	return nil
}

func (f *faults) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.errors
	f.errors = nil
	return out
}

// mutant returns a server with all routes, and the record of its errors.
func mutant(t *testing.T) (*Server, *faults) {
	log := &faults{Handler: slog.DiscardHandler}
	s := docsServer(t)
	c := s.cfg
	c.Log = slog.New(log)
	set := testSettings()
	set.MaxBodyBytes = 16 << 20
	set.Chat.TrustRequestChatTemplate = true
	set.Chat.Reasoning, set.Chat.Tools, set.Chat.AutoToolChoice = "qwen3", "hermes", true
	return New(c, set), log
}

// unavailable returns the paths of the routes that answer 501.
func unavailable() (list []string) {
	for _, r := range unsupported {
		list = append(list, r.methods[0]+" "+r.path)
	}
	return list
}

// sendMutated sends one request and waits for its reply, up to a limit.
func sendMutated(s *Server, m mutate.Request, patience time.Duration) *httptest.ResponseRecorder {
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		r := httptest.NewRequest(m.Method, "/", bytes.NewReader(m.Body))
		if u, err := r.URL.Parse(m.Path); err == nil {
			r.URL = u
		}
		for k, v := range m.Header {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		done <- w
	}()
	select {
	case w := <-done:
		return w
	case <-time.After(patience):
		return nil
	}
}

// TestMutated checks that the server answers every mutated request in time, without an
// internal error, and that refusals have the form of errors.
func TestMutated(t *testing.T) {
	s, log := mutant(t)
	m, err := mutate.New(fetch(s, "GET", "/openapi.json").Body.Bytes(), unavailable(), 1)
	if err != nil {
		t.Fatal(err)
	}
	m.Gentle = *mutations <= 1000
	statuses := map[int]int{}
	for i := range *mutations {
		r := m.Next()
		w := sendMutated(s, r, time.Minute)
		if w == nil {
			buf := make([]byte, 1<<20)
			t.Fatalf("request %d: no answer after a minute: %s\n%s", i, r, buf[:runtime.Stack(buf, true)])
		}
		statuses[w.Code]++
		if err := mutate.Judge(r, w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil {
			t.Errorf("request %d: %v\n%s", i, err, r)
		}
		for _, f := range log.take() {
			t.Errorf("request %d: the server says %.1500s\n%s", i, f, r)
		}
		if t.Failed() && i > 3000 {
			break
		}
	}
	t.Logf("statuses: %v", statuses)
	if statuses[200] == 0 || statuses[400] == 0 {
		t.Error("got only answered or only refused requests, want both")
	}
}
