package api

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

func TestMeter(t *testing.T) {
	now, m := time.Unix(1000, 0), &meter{}
	l := PerKey{MaxConcurrent: 2, RequestsPerMinute: 3, TokensPerMinute: 600}
	want := func(what string, wait time.Duration) {
		t.Helper()
		over := m.begin(now, l)
		if (over == nil) != (what == "") || over != nil && (!strings.Contains(over.what, what) || over.wait != wait) {
			t.Errorf("got %+v, want %q after %s", over, what, wait)
		}
	}
	want("", 0)
	want("", 0)
	want("2 requests are open", time.Second)
	m.end()
	want("", 0)
	m.end()
	want("3 requests per minute", 20*time.Second)
	now = now.Add(20 * time.Second)
	want("", 0)
	m.end()
	m.charge(now, l, 699)
	want("600 tokens per minute", 10*time.Second) // 699 used, one more wanted: 100 above, 10 a second
	now = now.Add(time.Minute)
	want("", 0)
	m.end()
	l = PerKey{}
	for range 10 {
		want("", 0)
	}
	m, l.RequestsPerMinute = &meter{}, 1
	want("", 0)
	want("1 requests per minute", time.Minute)
}

// TestMetersStay checks that a key keeps its usage after a reload.
func TestMetersStay(t *testing.T) {
	set := testSettings()
	set.Keys, set.PerKey.RequestsPerMinute = []string{"a", "b"}, 1
	s := testServer(&chattest.Model{}, set)
	ask := func(key string) int {
		r := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(`{"prompt":"x"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Code
	}
	if ask("b") != 200 || ask("b") != 429 {
		t.Fatal("no limit")
	}
	set.Keys = []string{"c", "b"}
	s.SetSettings(set)
	if a, b, c := ask("a"), ask("b"), ask("c"); a != 401 || b != 429 || c != 200 {
		t.Errorf("a %d, b %d, c %d", a, b, c)
	}
	set.PerKey.RequestsPerMinute = 0
	s.SetSettings(set)
	if got := ask("b"); got != 200 {
		t.Errorf("without the limit: %d", got)
	}
}

// TestGuardedWithoutKeys checks that a server whose keys were all revoked accepts none.
func TestGuardedWithoutKeys(t *testing.T) {
	set := testSettings()
	set.Keys, set.Guarded = nil, true
	s := testServer(&chattest.Model{}, set)
	for path, want := range map[string]int{"/v1/models": 401, "/admin/status": 401, "/livez": 200} {
		if w := fetch(s, "GET", path); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}

func TestConcurrencyOfKey(t *testing.T) {
	m, started, release := blockedModel()
	set := testSettings()
	set.PerKey.MaxConcurrent = 1
	s := testServer(m, set)
	var wg sync.WaitGroup
	wg.Go(func() { post(s, "/v1/chat/completions", hello) })
	<-started
	w := post(s, "/v1/completions", `{"prompt":"x"}`)
	if w.Code != 429 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"type":"RateLimitError","param":null,"code":429`) {
		t.Errorf("over the limit: %d %v %s", w.Code, w.Header(), w.Body)
	}
	release()
	wg.Wait()
	if w := post(s, "/v1/completions", `{"prompt":"x"}`); w.Code != 200 {
		t.Errorf("afterwards: %d %s", w.Code, w.Body)
	}
}

// TestSlowBody checks that a client which sends its body too slowly is disconnected,
// even if the body is not read, and that a long reply is not interrupted.
func TestSlowBody(t *testing.T) {
	set := testSettings()
	set.BodyTimeout, set.Keys = 100*time.Millisecond, []string{"k"}
	say := make(chan struct{})
	m := &chattest.Model{Say: func(engine.Request, int) chattest.Script {
		<-say
		return chattest.Script{Text: "x"}
	}}
	srv := httptest.NewServer(testServer(m, set).Handler())
	defer srv.Close()
	send := func(key, body string) string {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer "+key+
			"\r\nContent-Length: 14\r\nConnection: close\r\n\r\n"+body)
		all, err := io.ReadAll(conn) // until the server closes the connection
		if err != nil {
			t.Error(err)
		}
		return string(all)
	}
	if got := send("k", `{"prompt"`); !strings.HasPrefix(got, "HTTP/1.1 408") || !strings.Contains(got, `"code":408`) {
		t.Errorf("slow: %s", got)
	}
	if got := send("none", `{"pro`); !strings.HasPrefix(got, "HTTP/1.1 401") {
		t.Errorf("without a key: %s", got)
	}
	time.AfterFunc(300*time.Millisecond, func() { close(say) })
	if got := send("k", `{"prompt":"x"}`); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("a reply that takes longer than a body may: %s", got)
	}
}

func TestRequestLog(t *testing.T) {
	var out bytes.Buffer
	level := &slog.LevelVar{}
	set := testSettings()
	set.LogRequests, set.AccessLog = true, true
	m := &chattest.Model{}
	s := New(Config{
		State: &state{chattest.Service(m), "ready"}, Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})),
	}, set)
	body := `{"prompt":"a secret` + strings.Repeat("x", 2*maxShown) + `"}`
	post(s, "/v1/completions", body)
	if got := out.String(); !strings.Contains(got, `msg="request received"`) || !strings.Contains(got, "bytes="+strconv.Itoa(len(body))) || strings.Contains(got, "secret") {
		t.Errorf("at info: %s", got)
	}
	level.Set(slog.LevelDebug)
	out.Reset()
	post(s, "/v1/completions", body)
	if got := out.String(); !strings.Contains(got, "a secret") || len(got) > maxShown+1000 {
		t.Errorf("at debug: %d bytes: %s", len(got), got)
	}
	level.Set(slog.LevelWarn)
	out.Reset()
	post(s, "/v1/completions", body)
	m.Refuse = engine.ErrOverloaded
	post(s, "/v1/completions", `{"prompt":"x"}`)
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN msg=request") || !strings.Contains(got, "status="+strconv.Itoa(http.StatusServiceUnavailable)) {
		t.Errorf("at warn: %s", got)
	}
}

// TestProbeLog checks that probes are not in the log at info, whatever they answer, and are at
// debug.
func TestProbeLog(t *testing.T) {
	var out bytes.Buffer
	level := &slog.LevelVar{}
	set := testSettings()
	set.AccessLog = true
	s := New(Config{
		State: &state{nil, "loading"}, Metrics: http.NotFoundHandler(), Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})),
	}, set)
	ask := func() {
		for path := range probes {
			s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
		}
	}
	if ask(); out.Len() > 0 {
		t.Errorf("at info: %s", out.String())
	}
	level.Set(slog.LevelDebug)
	if ask(); strings.Count(out.String(), "level=DEBUG msg=request ") != len(probes) || !strings.Contains(out.String(), "path=/readyz status=503") {
		t.Errorf("at debug, want a line for each of %d probes: %s", len(probes), out.String())
	}
	out.Reset()
	s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/models", nil))
	if !strings.Contains(out.String(), "level=WARN msg=request ") {
		t.Errorf("a request that is refused while the server loads: %s", out.String())
	}
}
