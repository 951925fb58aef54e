package api

import (
	"net/http/httptest"
	"strings"
	"testing"

	"vapp.dev/appliance/chat/chattest"
)

// TestHosts checks which Host headers are accepted, with and without the check.
func TestHosts(t *testing.T) {
	public, local, restricted, named := testSettings(), testSettings(), testSettings(), testSettings()
	local.Hosts.Loopback = true
	restricted.CORS.Origins = nil
	restricted.Hosts.Listen = "Inner.example"
	named.Hosts.Allowed = []string{"LLM.example.com", ".pods.example"}
	every := restricted
	every.Hosts.Allowed = []string{"*"}
	own := "localhost localhost:8000 LOCALHOST. app.localhost:80 127.0.0.1 127.0.0.1:8000 10.1.2.3:8000 [::1]:8000 [::1] [fe80::1%25eth0]:8000"
	const strange = "evil.example evil.example:8000 localhost.evil.example 127.0.0.1.evil.example evillocalhost vllm 127.1:8000 [::1].evil.example"
	for name, x := range map[string]struct {
		set         Settings
		own, others string
	}{
		"public":     {public, own + " " + strange, ""},
		"loopback":   {local, own, strange},
		"restricted": {restricted, own + " inner.example:8000", strange},
		"named":      {named, own + " llm.example.com a.pods.example:1 b.a.pods.example", strange + " pods.example x.llm.example.com evilpods.example"},
		"every":      {every, own + " " + strange, ""},
	} {
		s := testServer(&chattest.Model{}, x.set)
		ask := func(path, host string) (int, string) {
			r := httptest.NewRequest("GET", path, nil)
			r.Host = host
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			return w.Code, w.Body.String()
		}
		for _, host := range append(strings.Fields(x.own), "") {
			if code, body := ask("/version", host); code != 200 {
				t.Errorf("%s: host %q: %d %s", name, host, code, body)
			}
		}
		for _, host := range strings.Fields(x.others) {
			if code, body := ask("/v1/models", host); code != 403 || !strings.Contains(body, `"message":"The host \"`+host+`\" is not a name of this server: add it to serve.allowedHosts."`) {
				t.Errorf("%s: host %q: %d %s", name, host, code, body)
			}
			if code, body := ask("/v1/messages", host); code != 403 || !strings.HasPrefix(body, `{"type":"error"`) {
				t.Errorf("%s: host %q: %d %s", name, host, code, body)
			}
		}
	}
}

// TestRebinding checks that a page whose host name resolves to the server is refused.
func TestRebinding(t *testing.T) {
	set := testSettings()
	set.CORS.Origins = []string{"https://app.example"}
	s := testServer(&chattest.Model{}, set)
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"hi"}]}`))
	r.Host = "evil.example:8000"
	r.Header.Set("Origin", "http://evil.example:8000")
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	if s.Handler().ServeHTTP(w, r); w.Code != 403 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
