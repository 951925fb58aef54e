package page

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// TestSelfContained checks that the document refers to no other resources, that its policy
// forbids them, and that the policy's hashes match style and script.
func TestSelfContained(t *testing.T) {
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	text, h := w.Body.String(), w.Header()
	if m := regexp.MustCompile(`(?i)(?:src|href|action)\s*=\s*["'](?:https?:|//|/)|@import|url\(|\bimport\b|eval\(|innerHTML|\sstyle="|\son\w+="`).FindString(text); m != "" {
		t.Errorf("the page contains %q, which loads a resource or code", m)
	}
	csp := h.Get("Content-Security-Policy")
	for tag, source := range map[string]string{"style": "style-src", "script": "script-src"} {
		_, rest, _ := strings.Cut(text, "<"+tag+">")
		inside, _, found := strings.Cut(rest, "</"+tag+">")
		if !found || len(inside) < 1000 || !strings.Contains(csp, source+" "+digest(inside)) {
			t.Errorf("<%s> holds %d bytes, the policy is %s", tag, len(inside), csp)
		}
	}
	if !strings.HasPrefix(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || h.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("headers %v", h)
	}
	if h.Get("X-Frame-Options") != "DENY" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || !strings.Contains(csp, "frame-ancestors 'none'") {
		t.Errorf("headers %v", h)
	}
	if strings.Contains(text, "/*STYLE*/") || strings.Contains(text, "/*SCRIPT*/") || len(text) > 64<<10 {
		t.Errorf("%d bytes", len(text))
	}
}

func TestNotModified(t *testing.T) {
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("If-None-Match", w.Header().Get("ETag"))
	again := httptest.NewRecorder()
	Handler().ServeHTTP(again, r)
	if again.Code != 304 || again.Body.Len() != 0 {
		t.Errorf("%d with %d bytes", again.Code, again.Body.Len())
	}
}

// TestEveryElementIsThere checks that the page has every element that the scripts look up.
func TestEveryElementIsThere(t *testing.T) {
	ids := regexp.MustCompile(`\$\('([\w-]+)'\)`).FindAllStringSubmatch(talk+state, -1)
	for _, m := range append(ids, regexp.MustCompile(`'(\w+)'`).FindAllStringSubmatch(strings.Split(talk, "const knobs = ")[1][:100], -1)...) {
		if !strings.Contains(frame, `id="`+m[1]+`"`) {
			t.Errorf("no element %s", m[1])
		}
	}
	if len(ids) < 30 {
		t.Errorf("got %d look-ups, want at least 30", len(ids))
	}
}
