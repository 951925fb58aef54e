package page

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// get returns the answer of the page to a request with these pairs of header names and values.
func get(header ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	Handler().ServeHTTP(w, r)
	return w
}

// TestSelfContained checks that the page's own files refer to no other resources and that none
// interprets HTML or code.
func TestSelfContained(t *testing.T) {
	foreign := regexp.MustCompile(`(?i)(?:src|href|action)\s*=\s*["'](?:https?:|//|/)|@import|(?-i:url\()|\bimport\b|\beval\(|new Function|innerHTML|outerHTML|insertAdjacentHTML|DOMParser|document\.write|setAttribute\('(?:on|style|href|src)|\sstyle="|\son\w+="`)
	for _, name := range append([]string{"page.html", "style.css", "first.js"}, scripts...) {
		if m := foreign.FindString(read(name)); m != "" {
			t.Errorf("%s contains %q, which loads a resource or interprets text", name, m)
		}
	}
	// What an image element shows is set in one place, which takes pixels as a data: URL only.
	if sources := regexp.MustCompile(`\.(?:src|srcset|href|srcdoc|action|formAction)\s*=[^=]`).FindAllString(script(), -1); len(sources) != 2 || strings.Count(read("images.js"), "if (imageURL.test(url)) img.src = url;") != 1 || !strings.Contains(read("markdown.js"), ".href = ") {
		t.Errorf("the scripts set %q; want .src once, behind imageURL, and .href once, of a link", sources)
	}
	text := get().Body.String()
	if strings.Contains(text, "/*STYLE*/") || strings.Contains(text, "/*SCRIPT*/") || strings.Contains(text, "<!--LIBRARIES-->") || len(text) > 400<<10 {
		t.Errorf("%d bytes, or a mark that was not replaced", len(text))
	}
	if n := len(built().packed); n > 130<<10 {
		t.Errorf("packed %d bytes, at most 130 KiB", n)
	}
}

// TestPolicy checks that the policy of the response allows exactly the style and the scripts of
// the document, by their hashes, and no unsafe source.
func TestPolicy(t *testing.T) {
	w := get()
	text, h := w.Body.String(), w.Header()
	directives := map[string]string{}
	for _, d := range strings.Split(h.Get("Content-Security-Policy"), "; ") {
		name, value, _ := strings.Cut(d, " ")
		directives[name] = value
	}
	hashes := func(tag string) []string {
		var out []string
		for _, m := range regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(text, -1) {
			out = append(out, digest(m[1]))
		}
		return out
	}
	if got := hashes("script"); len(got) != 4 || strings.Join(got, " ") != directives["script-src"] {
		t.Errorf("%d scripts, the policy has %s", len(got), directives["script-src"])
	}
	if got := hashes("style"); len(got) != 1 || got[0] != directives["style-src"] {
		t.Errorf("%d styles, the policy has %s", len(got), directives["style-src"])
	}
	for name, want := range map[string]string{
		"default-src": "'none'", "connect-src": "'self'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'",
		"frame-ancestors": "'none'", "require-trusted-types-for": "'script'", "trusted-types": "'none'",
	} {
		if directives[name] != want {
			t.Errorf("%s is %q, want %q", name, directives[name], want)
		}
	}
	if len(directives) != 10 || strings.Contains(h.Get("Content-Security-Policy"), "unsafe") {
		t.Errorf("the policy is %s", h.Get("Content-Security-Policy"))
	}
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
	} {
		if h.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, h.Get(name), want)
		}
	}
}

// TestLibraries checks that the vendored files are the published ones, that their licences are
// here, and that the list of dependencies and the script that fetches them name the same.
func TestLibraries(t *testing.T) {
	doc, fetch := file(t, "../../docs/dependencies.md"), file(t, "../../scripts/page-libs.sh")
	for _, l := range libraries {
		sum := sha256.Sum256([]byte(published(l)))
		if hex.EncodeToString(sum[:]) != l.sum {
			t.Errorf("libs/%s has SHA-256 %x, want %s", l.file, sum, l.sum)
		}
		if len(vendored(l)) < 100<<10 || strings.Contains(strings.ToLower(vendored(l)), "</script") {
			t.Errorf("libs/%s has %d bytes, or it ends its own element", l.file, len(vendored(l)))
		}
		licence := file(t, "libs/"+strings.TrimSuffix(l.file, ".min.js")+".LICENSE")
		if !strings.Contains(licence, "Copyright (c)") || !strings.Contains(licence, "WARRANT") {
			t.Errorf("the licence of %s is not here", l.pack)
		}
		if !strings.Contains(fetch, "\n"+l.pack+" "+l.version+" ") {
			t.Errorf("scripts/page-libs.sh lacks %s %s", l.pack, l.version)
		}
		for where, want := range map[string]string{doc: "| `" + l.pack + "` (npm) | " + l.version + " |", fetch: strings.Join([]string{l.path, l.file, l.sum}, " ")} {
			if !strings.Contains(where, want) {
				t.Errorf("docs/dependencies.md or scripts/page-libs.sh lacks %s", want)
			}
		}
	}
	for _, e := range must(files.ReadDir("libs")) {
		if !slices.ContainsFunc(libraries, func(l library) bool { return l.file+".gz" == e.Name() }) {
			t.Errorf("libs/%s is in no list", e.Name())
		}
	}
}

// TestPacked checks that a client that accepts gzip gets the same document.
func TestPacked(t *testing.T) {
	w := get("Accept-Encoding", "br, gzip")
	z, err := gzip.NewReader(w.Body)
	if err != nil || w.Header().Get("Content-Encoding") != "gzip" {
		t.Fatalf("%v, %v", err, w.Header())
	}
	if text := string(must(io.ReadAll(z))); text != get().Body.String() {
		t.Error("the packed document differs")
	}
	if w.Header().Get("ETag") == get().Header().Get("ETag") || w.Header().Get("Vary") != "Accept-Encoding" {
		t.Errorf("headers %v", w.Header())
	}
}

func TestNotModified(t *testing.T) {
	for _, encoding := range []string{"", "gzip"} {
		tag := get("Accept-Encoding", encoding).Header().Get("ETag")
		if again := get("Accept-Encoding", encoding, "If-None-Match", tag); again.Code != 304 || again.Body.Len() != 0 {
			t.Errorf("%d with %d bytes", again.Code, again.Body.Len())
		}
	}
}

// TestScripts checks that the page has every element that its scripts look up, and that every
// script that is embedded runs.
func TestScripts(t *testing.T) {
	frame := read("page.html")
	ids := regexp.MustCompile(`\$\('([\w-]+)'\)`).FindAllStringSubmatch(script(), -1)
	_, knobs, _ := strings.Cut(read("settings.js"), "const knobs = [")
	knobs, _, _ = strings.Cut(knobs, "]")
	for _, m := range append(ids, regexp.MustCompile(`'(\w+)'`).FindAllStringSubmatch(knobs, -1)...) {
		if !strings.Contains(frame, `id="`+m[1]+`"`) {
			t.Errorf("no element %s", m[1])
		}
	}
	if len(ids) < 80 || strings.Count(knobs, ",") != 6 {
		t.Errorf("got %d look-ups, want at least 80; the knobs are %s", len(ids), knobs)
	}
	for _, e := range must(files.ReadDir(".")) {
		if strings.HasSuffix(e.Name(), ".js") && e.Name() != "first.js" && !slices.Contains(scripts, e.Name()) {
			t.Errorf("%s is embedded and does not run", e.Name())
		}
	}
	for _, key := range regexp.MustCompile(`e\.code === 'Key(\w)'|e\.key === '([/?])'`).FindAllStringSubmatch(read("keys.js"), -1) {
		if k := key[1] + key[2]; !strings.Contains(frame, "<kbd>"+k+"</kbd>") || !strings.Contains(file(t, "../../docs/guide/page.md"), "`"+k+"`") && !strings.Contains(file(t, "../../docs/guide/page.md"), "+"+k+"`") {
			t.Errorf("the key %s is not in the list of the page or in docs/guide/page.md", k)
		}
	}
}

// TestContrast checks that every text color has the contrast of WCAG 2.2 AA (4.5:1) on the
// backgrounds on which the page uses it, in both schemes, and that the edges of fields and the
// focus have 3:1.
func TestContrast(t *testing.T) {
	colors := map[string][2]float64{}
	for _, m := range regexp.MustCompile(`--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);`).FindAllStringSubmatch(read("style.css"), -1) {
		colors[m[1]] = [2]float64{luminance(t, m[2]), luminance(t, m[3])}
	}
	const text, edge = 4.5, 3
	for _, c := range []struct {
		ink, grounds string
		least        float64
	}{
		{"ink", "back panel raised mine code bad-back", text}, {"soft", "back panel raised mine code", text}, {"accent", "back panel raised mine", text},
		{"on-accent", "accent", text}, {"bad", "back panel raised bad-back", text}, {"good", "back panel", text}, {"warn", "back panel warn-back", text},
		{"back", "ink", text}, // the toast
		{"c-keyword", "code raised", text}, {"c-string", "code raised", text}, {"c-number", "code raised", text}, {"c-title", "code raised", text}, {"c-comment", "code raised", text},
		{"edge", "back panel raised", edge}, {"accent", "code", edge},
	} {
		for _, ground := range strings.Fields(c.grounds) {
			for i, name := range []string{"light", "dark"} {
				a, okInk := colors[c.ink]
				b, okGround := colors[ground]
				if !okInk || !okGround {
					t.Fatalf("style.css lacks the color %s or %s", c.ink, ground)
				}
				if got := (max(a[i], b[i]) + 0.05) / (min(a[i], b[i]) + 0.05); got < c.least {
					t.Errorf("%s on %s, %s: contrast %.2f, want at least %.1f", c.ink, ground, name, got, c.least)
				}
			}
		}
	}
}

// luminance returns the relative luminance of a color, as WCAG defines it.
func luminance(t *testing.T, hash string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(hash[1:], 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	linear := func(v uint64) float64 {
		c := float64(v&255) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(n>>16) + 0.7152*linear(n>>8) + 0.0722*linear(n)
}

func file(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
