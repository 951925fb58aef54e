package appliance

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"vapp.dev/appliance/api"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
	"vapp.dev/schema"
)

// TestLengthBesideChunks checks that a request with both a Content-Length and chunks ends
// with its last chunk, so that a proxy and the server see the same requests.
func TestLengthBesideChunks(t *testing.T) {
	s := start(t, `serve: {servedModelName: ["m"], accessLog: true}`)
	body := `{"model":"m","prompt":"hi","max_tokens":1}`
	next := "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	chunks := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	head := func(lines string) string {
		return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + lines + "\r\n"
	}
	for name, x := range map[string]struct {
		sent string
		want []int
	}{
		"less than the chunks":  {head("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") + chunks + next, []int{200, 200}},
		"more than the chunks":  {head(fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n", len(chunks)+len(next))) + chunks + next, []int{200, 200}},
		"the other way around":  {head("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n") + chunks + next, []int{200, 200}},
		"an end in the chunks":  {head("Content-Length: 100\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n" + next, []int{400, 200}},
		"two lengths":           {head("Content-Length: 5\r\nContent-Length: 6\r\n") + chunks + next, []int{400}},
		"chunked twice":         {head("Content-Length: 5\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n") + chunks + next, []int{501}},
		"another encoding":      {head("Content-Length: 5\r\nTransfer-Encoding: xchunked\r\n") + chunks + next, []int{501}},
		"a space before colon":  {head("Content-Length: 5\r\nTransfer-Encoding : chunked\r\n") + chunks + next, []int{400}},
		"a tab before the word": {head("Content-Length: 5\r\nTransfer-Encoding:\tchunked\r\n") + chunks + next, []int{200, 200}},
	} {
		if got := exchange(t, s.Addr().String(), x.sent); fmt.Sprint(got) != fmt.Sprint(x.want) {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
}

// exchange sends bytes and returns the status of each reply until the connection closes.
func exchange(t *testing.T, at, sent string) (codes []int) {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, sent); err != nil {
		t.Fatal(err)
	}
	for r := bufio.NewReader(c); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return codes
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		codes = append(codes, resp.StatusCode)
	}
}

// TestCiphers checks that TLS 1.2 accepts authenticated encryption only, and that older
// versions are refused.
func TestCiphers(t *testing.T) {
	dir := t.TempDir()
	certify(t, dir, 7)
	s := start(t, `serve: tls: {certFile: "`+dir+`/cert.pem", keyFile: "`+dir+`/key.pem"}`)
	shake := func(c *tls.Config) (uint16, error) {
		c.InsecureSkipVerify = true
		conn, err := tls.Dial("tcp", s.Addr().String(), c)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		return conn.ConnectionState().CipherSuite, nil
	}
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if strings.HasPrefix(suite.Name, "TLS_RSA_") || strings.Contains(suite.Name, "ECDHE_RSA") || suite.SupportedVersions[0] == tls.VersionTLS13 {
			continue // the certificate's key is ECDSA; TLS 1.3 is tested below
		}
		got, err := shake(&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite.ID}})
		sealed := strings.Contains(suite.Name, "GCM") || strings.Contains(suite.Name, "POLY1305")
		if sealed != (err == nil) || sealed && got != suite.ID {
			t.Errorf("%s: %v", suite.Name, err)
		}
	}
	for _, id := range ciphers {
		if name := tls.CipherSuiteName(id); !strings.HasPrefix(name, "TLS_ECDHE_") || strings.Contains(name, "CBC") {
			t.Errorf("%s is offered", name)
		}
	}
	if _, err := shake(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	if _, err := shake(&tls.Config{MinVersion: tls.VersionTLS13}); err != nil {
		t.Error(err)
	}
}

// newListening returns an appliance of the toy model that listens but does not run.
func newListening(t *testing.T, host, more string) (*Appliance, *logBuffer) {
	t.Helper()
	dir, log := t.TempDir(), &logBuffer{}
	if err := enginetest.WriteLlama(filepath.Join(dir, "toy"), enginetest.Llama{Seed: 3}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "p.cue")
	writeFile(t, file, strings.Replace(profileText(filepath.Join(dir, "toy"), more), "127.0.0.1", host, 1))
	a, err := New(Config{Profile: file, Machine: Machine{Backends: []backend.Opener{ref.Opener{}}}, Version: "test", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.socket.socket.Close(); a.prepared().Close() })
	return a, log
}

// TestWarnOpen checks that a server without keys on a public address warns once, and again
// when its last key is removed.
func TestWarnOpen(t *testing.T) {
	const warning = "level=WARN msg=\"no API keys:"
	for _, x := range []struct {
		host, more string
		want       int
	}{
		{"0.0.0.0", "", 1}, {"::", "", 1}, {"127.0.0.1", "", 0}, {"localhost", "", 0}, {"::1", "", 0}, {"0.0.0.0", `serve: apiKeys: ["k"]`, 0},
	} {
		a, log := newListening(t, x.host, x.more)
		if got := strings.Count(log.String(), warning); got != x.want {
			t.Errorf("%s %s: %d warnings: %s", x.host, x.more, got, log)
		}
		public := x.host == "0.0.0.0" || x.host == "::"
		for i, keys := range [][]string{{"k"}, {"k", "l"}, nil, nil, {"k"}, nil} {
			before := strings.Count(log.String(), warning)
			l := *a.live.Load()
			l.api.Keys, l.api.Guarded = keys, len(keys) > 0
			a.apply(&l)
			want := 0
			if public && (i == 2 || i == 5) {
				want = 1
			}
			if got := strings.Count(log.String(), warning) - before; got != want {
				t.Errorf("%s: change %d: %d warnings, want %d", x.host, i, got, want)
			}
		}
	}
}

// TestHostOfLoopback checks that a server on a loopback address accepts its own host names,
// also after a reload, and the names that a reload adds.
func TestHostOfLoopback(t *testing.T) {
	s := start(t, "")
	ask := func(host string) int {
		r, err := http.NewRequest("GET", s.url+"/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if a, b, c := ask("localhost"), ask("evil.example"), ask("llm.example"); a != 200 || b != 403 || c != 403 {
		t.Errorf("localhost %d, evil.example %d, llm.example %d", a, b, c)
	}
	s.edit(t, "rename", `serve: allowedHosts: ["llm.example"]`)
	s.latest(t, Applied)
	if a, b, c := ask("localhost"), ask("evil.example"), ask("llm.example:443"); a != 200 || b != 403 || c != 200 {
		t.Errorf("localhost %d, evil.example %d, llm.example %d", a, b, c)
	}
	s.edit(t, "rename", `serve: servedModelName: ["other"]`)
	s.eventually(t, "other", func() bool { return s.serves(t, "other") })
	if a, b, c := ask("localhost"), ask("evil.example"), ask("llm.example"); a != 200 || b != 403 || c != 403 {
		t.Errorf("without names: localhost %d, evil.example %d, llm.example %d", a, b, c)
	}
	open, _ := newListening(t, "0.0.0.0", "")
	if h := open.live.Load().api.Hosts; h.Loopback {
		t.Errorf("%+v", h)
	}
}

// TestPathsNeedAKey checks that clients without a key do not see the directories of model
// and profile.
func TestPathsNeedAKey(t *testing.T) {
	s := start(t, `serve: apiKeys: ["k"]`)
	s.edit(t, "rename", `serve: apiKeys: ["k"], log: level: "loud"`)
	if r := s.latest(t, Rejected); !strings.Contains(r.Error, s.profile) {
		t.Fatalf("%+v", r)
	}
	routes := []string{
		"/v1/models", "/v1/models/toy", "/admin/status", "/admin/reloads", "/admin/drift", "/", "/readyz", "/livez", "/version", "/load", "/metrics",
		"/docs", "/redoc", "/openapi.json", "/v1/responses/x", "/nothing",
	}
	ask := func(path, key string) string {
		r, err := http.NewRequest("GET", s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		resp, err := visitor.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	secret := []string{filepath.Dir(s.model), filepath.Dir(s.profile)}
	hidden := func(when string) {
		t.Helper()
		for _, path := range routes {
			for _, dir := range secret {
				if text := ask(path, ""); strings.Contains(text, dir) {
					t.Errorf("%s: %s shows %s: %s", when, path, dir, text)
				}
			}
		}
	}
	hidden("with keys")
	for path, want := range map[string]string{
		"/v1/models": `"root":"` + s.model + `"`, "/v1/models/toy": `"root":"` + s.model + `"`, "/admin/status": `"model":"` + s.model + `"`,
		"/admin/reloads": `"profile":"` + s.profile + `"`, "/admin/drift": `"file":"` + s.profile + `"`,
	} {
		if text := ask(path, "k"); !strings.Contains(text, want) {
			t.Errorf("%s with a key lacks %s: %s", path, want, text)
		}
	}
	if text := ask("/v1/models", "k"); !strings.Contains(text, `"id":"toy"`) || !strings.Contains(text, `"id":"`+s.model+`"`) {
		t.Errorf("with a key: %s", text)
	}
	s.edit(t, "rename", "")
	s.latest(t, Applied)
	hidden("without keys")
	for path, want := range map[string]string{"/v1/models": `"root":"toy"`, "/admin/status": `"model":"toy"`, "/admin/reloads": `"profile":"p.cue"`, "/admin/drift": `"file":"p.cue"`} {
		if text := ask(path, ""); !strings.Contains(text, want) {
			t.Errorf("%s without keys lacks %s: %s", path, want, text)
		}
	}
	s.write(t, "rename", strings.ReplaceAll(profileText(s.model, ""), s.model, s.model+"2"))
	s.eventually(t, "another model waits", func() bool { return s.audit.waiting() != nil })
	hidden("while another model waits")
	for _, path := range []string{"/admin/status", "/admin/reloads"} {
		if text := ask(path, ""); !strings.Contains(text, `model.source: \"toy\"`) {
			t.Errorf("%s lacks what waits: %s", path, text)
		}
	}
	for _, name := range []string{"toy", s.model} {
		r, err := s.ask(t.Context(), name, 1, false)
		if err != nil {
			t.Fatal(err)
		}
		var reply struct{ Model string }
		err = json.NewDecoder(r.Body).Decode(&reply)
		if r.Body.Close(); err != nil || r.StatusCode != 200 || reply.Model != name {
			t.Errorf("asked for %s: %s %q %v", name, r.Status, reply.Model, err)
		}
	}
}

func TestWithoutFolders(t *testing.T) {
	for text, want := range map[string]string{
		"/data/x/p.cue:3:4: serve.port: no":        "p.cue:3:4: serve.port: no",
		"open /data/models/a b/x: no such file":    "open a b/x: no such file",
		`model.source: "/a/x" → "/b/y" (x)`:        `model.source: "x" → "y" (x)`,
		"read (/data/x/y), file:///data/z/w":       "read (y), w",
		"https://host/a/b, profiles/x.cue, 3 KB/s": "https://host/a/b, profiles/x.cue, 3 KB/s",
		"../models/x.gguf, ~/x/y":                  "../models/x.gguf, ~/x/y",
		"":                                         "",
	} {
		if got := api.WithoutFolders(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestServedNames checks that a name in the profile is served unchanged.
func TestServedNames(t *testing.T) {
	for _, x := range []struct {
		source string
		names  []string
		want   string
	}{
		{"org/name", []string{"org/name"}, "[org/name]"}, {"../x/y.gguf", []string{"../x/y.gguf"}, "[../x/y.gguf]"},
		{"/data/y", []string{"/data/y"}, "[y /data/y]"}, {"/data/y", []string{"/data/z"}, "[/data/z]"}, {"/data/y", []string{"a", "/data/y"}, "[a /data/y]"},
	} {
		p := &schema.Profile{}
		p.Model.Source, p.Serve.ServedModelName = x.source, x.names
		if got := fmt.Sprint(servedNames(p)); got != x.want {
			t.Errorf("%s %v: %s, want %s", x.source, x.names, got, x.want)
		}
	}
}
