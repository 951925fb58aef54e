package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	"vapp.dev/appliance/chat/chattest"
)

// docsServer returns a server with all optional routes.
func docsServer(t *testing.T) *Server {
	t.Helper()
	s := testServer(&chattest.Model{}, testSettings())
	c := s.cfg
	other := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("{}")) })
	c.Metrics, c.Reloads, c.Status, c.Page = other, other, other, other
	return New(c, testSettings())
}

func fetch(s *Server, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

// TestDocument checks that the document is valid OpenAPI 3.1 and has exactly the
// registered routes.
func TestDocument(t *testing.T) {
	s := docsServer(t)
	w := fetch(s, "GET", "/openapi.json")
	doc, err := libopenapi.NewDocument(w.Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if ok, why := v.ValidateDocument(); !ok {
		for _, e := range why {
			t.Errorf("%s: %s %v", e.Message, e.Reason, e.SchemaValidationErrors)
		}
	}
	var d struct {
		OpenAPI string
		Paths   map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil || !strings.HasPrefix(d.OpenAPI, "3.1.") {
		t.Fatalf("got openapi %q, %v, want 3.1.x", d.OpenAPI, err)
	}
	documented := map[string]bool{}
	for path, ops := range d.Paths {
		for method := range ops {
			documented[strings.ToUpper(method)+" "+path] = true
		}
	}
	for _, r := range s.Routes() {
		for _, m := range r.Methods {
			name := m + " " + bracedPath(r.Path)
			if m != "HEAD" && !documented[name] {
				t.Errorf("%s is served and not in the document: add its row to the table in routes.go", name)
			}
			delete(documented, name)
		}
	}
	for name := range documented {
		t.Errorf("%s is in the document and not served", name)
	}
}

// bracedPath returns a path in OpenAPI's syntax.
func bracedPath(path string) string {
	path = strings.Replace(path, "/v1/models/*", "/v1/models/{model}", 1)
	return regexp.MustCompile(`:(\w+)`).ReplaceAllString(path, "{$1}")
}

// TestDocsPages checks that the pages show every operation, load nothing from other
// hosts, and answer 404 when the profile disables them.
func TestDocsPages(t *testing.T) {
	s := docsServer(t)
	for _, path := range []string{"/docs", "/redoc"} {
		w := fetch(s, "GET", path)
		text := w.Body.String()
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			t.Fatalf("%s: got %d %v, want 200 and text/html", path, w.Code, w.Header())
		}
		for _, r := range s.Routes() {
			if !strings.Contains(text, "<code>"+bracedPath(r.Path)+"</code>") {
				t.Errorf("%s lacks %s", path, r.Path)
			}
		}
		if m := regexp.MustCompile(`(?i)(?:src|href)="(?:https?:)?//[^"]*"|@import|url\(`).FindString(text); m != "" {
			t.Errorf("%s asks another host: %s", path, m)
		}
		if got := strings.Contains(text, "<textarea"); got != (path == "/docs") {
			t.Errorf("%s: requests can be tried: %v", path, got)
		}
		for _, m := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(text, -1) {
			if !strings.Contains(text, `id="`+m[1]+`"`) {
				t.Errorf("%s: nothing is at #%s", path, m[1])
			}
		}
	}
	for _, path := range []string{"/docs", "/redoc", "/docs/oauth2-redirect"} {
		w := fetch(s, "GET", path)
		text, h := w.Body.String(), w.Header()
		csp := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'; ") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", path, csp)
		}
		for _, tag := range []string{"style", "script"} {
			blocks := regexp.MustCompile(`(?s)<`+tag+`\b[^>]*>(.*?)</`+tag+`>`).FindAllStringSubmatch(text, -1)
			for _, b := range blocks {
				sum := sha256.Sum256([]byte(b[1]))
				if want := tag + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(csp, want) {
					t.Errorf("%s: the policy %q lacks %s", path, csp, want)
				}
			}
			if (len(blocks) > 0) == (path == "/docs/oauth2-redirect") {
				t.Errorf("%s: %d blocks of %s", path, len(blocks), tag)
			}
		}
		if m := regexp.MustCompile(`(?i)\sstyle="|\son\w+="|javascript:`).FindString(text); m != "" {
			t.Errorf("%s holds %q, which the policy forbids", path, m)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer"} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s %q", path, name, got)
			}
		}
	}
	if got := fetch(s, "GET", "/openapi.json").Header().Get("X-Content-Type-Options"); got != "nosniff" {
		t.Errorf("/openapi.json: X-Content-Type-Options %q", got)
	}
	off := testSettings()
	off.NoDocs = true
	s.SetSettings(off)
	for _, path := range []string{"/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc"} {
		for _, method := range []string{"GET", "HEAD"} {
			if w := fetch(s, method, path); w.Code != 404 {
				t.Errorf("%s %s: %d with the docs off", method, path, w.Code)
			}
		}
	}
	s.SetSettings(testSettings())
	for _, path := range []string{"/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc"} {
		if a, b := fetch(s, "GET", path), fetch(s, "HEAD", path); a.Code != 200 || b.Code != 200 || a.Body.Len() == 0 {
			t.Errorf("%s: GET %d, HEAD %d", path, a.Code, b.Code)
		}
	}
}
