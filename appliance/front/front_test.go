package front

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// stub is a member that says what it got. Its key is "key-NAME"; "" needs none.
type stub struct {
	name, key string
	ready     bool
	loaded    bool
	holds     string // the id of a stored response
	read      func() // called when a body is read
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-From", s.name)
	switch path := r.URL.Path; {
	case s.key != "" && !s.allows(r):
		w.WriteHeader(http.StatusUnauthorized)
	case path == "/v1/models":
		if !s.ready {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q}]}`, s.name)
	case strings.HasPrefix(path, "/v1/responses/"):
		if !strings.Contains(path, s.holds) {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprintf(w, "%s of %s", path, s.name)
	case path == "/health" || path == "/readyz":
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		b, err := io.ReadAll(r.Body)
		if s.read != nil {
			s.read()
		}
		fmt.Fprintf(w, "%s %d %s %v", s.name, len(b), b[max(0, len(b)-40):], err)
	}
}

func (s *stub) allows(r *http.Request) bool {
	public := map[string]bool{"/health": true, "/readyz": true, "/": true}
	return s.key == "" || public[r.URL.Path] || r.Header.Get("Authorization") == "Bearer "+s.key
}

func front(stubs ...*stub) *Front {
	c := Config{
		BodyPaths: []string{"/v1/chat/completions", "/v1/messages"}, Log: slog.New(slog.DiscardHandler),
		Metrics: func(g prometheus.Gatherer) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, len(g.(prometheus.Gatherers))) })
		},
	}
	for _, s := range stubs {
		c.Members = append(c.Members, Member{
			Profile: "p" + s.name, Handler: s, Allows: s.allows, MaxBody: 1 << 20,
			Names: func() []string { return []string{s.name, s.name + "-lora"} },
			Ready: func() bool { return s.ready }, Healthy: func() bool { return s.ready },
			Loaded: func() bool { return s.loaded }, InFlight: func() int { return 2 },
			BodyTimeout: func() time.Duration { return time.Minute },
		})
	}
	return New(c)
}

func ask(f http.Handler, method, url, key, body string) (int, string) {
	r := httptest.NewRequest(method, url, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestRoutes(t *testing.T) {
	open := front(&stub{name: "a", ready: true, loaded: true, holds: "r1"}, &stub{name: "b", ready: true, holds: "r2"})
	keyed := front(&stub{name: "a", key: "A", ready: true, loaded: true}, &stub{name: "b", key: "B", ready: true, loaded: true}, &stub{name: "c", key: "B", ready: true})
	half := front(&stub{name: "a", ready: true}, &stub{name: "b"})
	cold := front(&stub{name: "a"}, &stub{name: "b"})
	const chat = "/v1/chat/completions"
	padded := `{"messages":"` + strings.Repeat("x", 200<<10) + `","model":"b"}`
	for _, c := range []struct {
		f              http.Handler
		ask, key, body string
		status         int
		want           string
	}{
		{open, "POST " + chat, "", `{"model":"a"}`, 200, `a 13 {"model":"a"} <nil>`},
		{open, "POST " + chat, "", `{"messages":[],"model":"b-lora"}`, 200, `b 32 {"messages":[],"model":"b-lora"} <nil>`},
		{open, "POST " + chat, "", padded, 200, fmt.Sprintf(`b %d`, len(padded))},
		{open, "POST " + chat, "", `{"model":"z"}`, 404, "{\"error\":{\"message\":\"The model `z` does not exist.\",\"type\":\"NotFoundError\",\"param\":\"model\",\"code\":404}}"},
		{open, "POST " + chat, "", `{"messages":[]}`, 400, "set `model` to one of `a`, `b`."},
		{open, "POST " + chat, "", `[]`, 400, "set `model` to one of `a`, `b`."},
		{open, "POST /v1/messages", "", `{}`, 400, `{"type":"error","error":{"type":"invalid_request_error"`},
		{open, "POST " + chat, "", `{"x":"` + strings.Repeat("y", 1<<20) + `","model":"a"}`, 413, "The body is larger than 1048576 bytes."},
		{open, "POST " + chat + "?profile=pb", "", `{"model":"a"}`, 200, "b 13"},
		{open, "POST " + chat + "?profile=x", "", `{"model":"a"}`, 404, "The profile `x` does not run here; one of pa, pb does."},
		{open, "GET /v1/models", "", "", 200, `{"object":"list","data":[{"id":"a"},{"id":"b"}]}`},
		{open, "GET /v1/models/b-lora", "", "", 200, "b 0"},
		{open, "GET /v1/models/z", "", "", 200, "a 0"},
		{open, "GET /v1/responses/r2", "", "", 200, "/v1/responses/r2 of b"},
		{open, "POST /v1/responses/r1/cancel", "", "", 200, "/v1/responses/r1/cancel of a"},
		{open, "DELETE /v1/responses/r3", "", "", 404, "of b"},
		{open, "GET /admin/drift", "", "", 400, "add ?profile=NAME to the URL (vapp status: --profile NAME), with one of pa, pb."},
		{open, "GET /admin/drift?profile=pb", "", "", 200, "b 0"},
		{open, "GET /health", "", "", 200, ""},
		{open, "GET /readyz", "", "", 200, `{"phase":"ready"}`},
		{open, "GET /load", "", "", 200, `{"server_load":4}`},
		{open, "GET /metrics", "", "", 200, "2"},
		{open, "GET /version", "", "", 200, "a 0"},
		{open, "OPTIONS " + chat, "", "", 200, "a 0"},
		{open, "OPTIONS " + chat + "?profile=pb", "", "", 200, "b 0"},
		{open, "OPTIONS " + chat + "?profile=none", "", "", 200, "a 0"},
		{half, "GET /health", "", "", 503, ""},
		{half, "GET /v1/models", "", "", 200, `{"object":"list","data":[{"id":"a"}]}`},
		{cold, "GET /v1/models", "", "", 503, ""},
		{half, "GET /version", "", "", 200, "a 0"},

		{keyed, "POST " + chat, "", `{"model":"a"}`, 401, ""},
		{keyed, "POST " + chat, "A", `{}`, 200, "a 2"}, // the only model of the key
		{keyed, "POST " + chat, "B", `{"model":"a"}`, 404, "The model `a` does not exist."},
		{keyed, "POST " + chat, "B", `{"model":"c"}`, 200, "c 13"},
		{keyed, "POST " + chat, "B", `{}`, 400, "one of `b`, `c`."},
		{keyed, "GET /v1/models", "B", "", 200, `[{"id":"b"},{"id":"c"}]`},
		{keyed, "GET /admin/status", "A", "", 200, "a 0"},
		{keyed, "GET /metrics", "B", "", 200, "2"},
		{keyed, "GET /metrics", "", "", 401, ""},
		{keyed, "GET /v1/models/a", "B", "", 200, "b 0"},
	} {
		method, url, _ := strings.Cut(c.ask, " ")
		status, got := ask(c.f, method, url, c.key, c.body)
		if status != c.status || !strings.Contains(got, c.want) {
			t.Errorf("%s, key %q, %.50s: %d %s, want %d %s", c.ask, c.key, c.body, status, got, c.status, c.want)
		}
	}
	for name, f := range map[string]*Front{"open": open, "keyed": keyed} {
		for _, b := range []interface{ Usage() (int64, int, int) }{f.bodies.small, f.bodies.large} {
			if used, reading, waiting := b.Usage(); used != 0 || reading != 0 || waiting != 0 {
				t.Errorf("%s: %d bytes are used, %d bodies read, %d wait", name, used, reading, waiting)
			}
		}
	}
}

// TestBodyOfUnknownLength sends bodies without Content-Length.
func TestBodyOfUnknownLength(t *testing.T) {
	b := &stub{name: "b", ready: true}
	f := front(&stub{name: "a", ready: true}, b)
	b.read = func() { // a body that the member has read is not kept
		if used, _, _ := f.bodies.large.Usage(); used != 0 {
			t.Errorf("%d bytes are used while the member answers", used)
		}
	}
	for _, n := range []int{10, 5 << 10, 100 << 10, 1<<20 - 60, 1 << 20} {
		body := `{"messages":"` + strings.Repeat("x", n) + `","model":"b"}`
		r := httptest.NewRequest("POST", "/v1/chat/completions", io.MultiReader(strings.NewReader(body)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		if n == 1<<20 {
			if w.Code != 413 {
				t.Errorf("%d bytes: %d %s", len(body), w.Code, w.Body)
			}
		} else if want := fmt.Sprintf(`b %d`, len(body)); !strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("%d bytes: %d %s", len(body), w.Code, w.Body)
		}
	}
	if used, _, _ := f.bodies.large.Usage(); used != 0 {
		t.Errorf("%d bytes are used", used)
	}
}

// TestSlowBodyEnds: a slow body is ended while another waits for its memory.
func TestSlowBodyEnds(t *testing.T) {
	f := front(&stub{name: "a", ready: true}, &stub{name: "b", ready: true})
	srv := httptest.NewServer(f)
	defer srv.Close()
	send := func(length int, body string) net.Conn {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", length, body)
		return c
	}
	wait := func(what string, is func() bool) {
		for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no ", what)
			}
		}
	}
	slow := send(900<<10, `{"x":"`+strings.Repeat("y", firstBytes))
	defer slow.Close()
	wait("body that is read", func() bool { _, n, _ := f.bodies.large.Usage(); return n == 1 })
	body := `{"x":"` + strings.Repeat("y", 800<<10) + `","model":"b"}`
	fast := send(len(body), body)
	defer fast.Close()
	wait("body that waits", func() bool { _, _, n := f.bodies.large.Usage(); return n == 1 })
	f.bodies.large.EndSlow(time.Now().Add(time.Hour))
	for _, c := range []struct {
		from net.Conn
		want string
	}{{slow, "408"}, {fast, "200"}} {
		c.from.SetReadDeadline(time.Now().Add(30 * time.Second))
		line := make([]byte, 12)
		if _, err := io.ReadFull(c.from, line); err != nil || !strings.HasSuffix(string(line), c.want) {
			t.Errorf("%s %v, want %s", line, err, c.want)
		}
	}
}
