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

var mutations = flag.Int("mutations", 1000, "how many requests TestMutated sends; above 1000 with bombs too")

// faults keeps what a server logs as an error: a panic, a failed request.
type faults struct {
	slog.Handler
	mu   sync.Mutex
	told []string
}

func (f *faults) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

func (f *faults) Handle(_ context.Context, r slog.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	f.told = append(f.told, text)
	return nil
}

func (f *faults) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.told
	f.told = nil
	return out
}

// mutant is a server of every route that keeps its faults.
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

// unavailable are the routes that only say that they are not available.
func unavailable() (list []string) {
	for _, r := range unsupported {
		list = append(list, r.methods[0]+" "+r.path)
	}
	return list
}

// sendMutated sends one request, and waits so long for its reply.
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

// TestMutated: whatever a request holds, its answer is no fault of the server, comes,
// and has the form of errors.
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
		t.Error("the requests are not of both kinds")
	}
}
