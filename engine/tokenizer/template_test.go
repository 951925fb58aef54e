//go:build cgo

package tokenizer

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var goldens = flag.String("goldens", "testdata/templates.json.gz", "the cases of TestTemplates, as testdata/record.py writes them")

// recordedAt is the clock under which the goldens were recorded.
var recordedAt = time.Date(2024, 7, 26, 3, 4, 5, 0, time.UTC)

// golden is transformers' result for a template: a text, a message that the template raised, or
// another failure in Python's wording.
type golden struct {
	Name, File, Source string
	Vars               json.RawMessage
	Want               string
	Raised, Fails      *string
}

func (g golden) template(t *testing.T) string {
	if g.File == "" {
		return g.Source
	}
	b, err := os.ReadFile(filepath.Join("testdata", "templates", g.File))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTemplates(t *testing.T) {
	f, err := os.Open(*goldens)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var cases []golden
	if err := json.NewDecoder(b).Decode(&cases); err != nil {
		t.Fatal(err)
	}
	for _, g := range cases {
		t.Run(g.Name, func(t *testing.T) { g.run(t) })
	}
}

func (g golden) run(t *testing.T) {
	var got string
	tmpl, err := NewTemplate(g.template(t), Limits{})
	if err == nil {
		defer tmpl.Close()
		got, err = tmpl.RenderAt(recordedAt, g.Vars)
	}
	var e *TemplateError
	failed := errors.As(err, &e)
	switch {
	case err != nil && !failed:
		t.Errorf("error of type %T: %v", err, err)
	case g.Raised != nil && (!failed || e.Kind != KindRaised || e.Msg != *g.Raised):
		t.Errorf("got %q, %v; want raised: %s", got, err, *g.Raised)
	case g.Fails != nil && (!failed || e.Kind != KindTemplate):
		t.Errorf("got %q, %v; want a failure: %s", got, err, *g.Fails)
	case g.Raised == nil && g.Fails == nil && (failed || got != g.Want):
		t.Errorf("error %v\n got %q\nwant %q", err, got, g.Want)
	}
}

func TestContentFormat(t *testing.T) {
	for source, want := range map[string]string{
		"{{ messages[0].content }}":                                                                                                      ContentString,
		"{% for m in messages %}{{ m.content }}{% endfor %}":                                                                             ContentString,
		"{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}":                                            ContentOpenAI,
		"{% for m in messages %}{% for p in m['content'] %}{{ p }}{% endfor %}{% endfor %}":                                              ContentOpenAI,
		"{% for m in messages %}{% set c = m.content %}{% for p in c %}{{ p }}{% endfor %}{% endfor %}":                                  ContentOpenAI,
		"{% set ms = messages[1:] %}{% for m in ms %}{% for p in m.content %}{% endfor %}{% endfor %}":                                   ContentOpenAI,
		"{% macro f(c) %}{% for p in c %}{% endfor %}{% endmacro %}{% for m in messages %}{{ f(m.content) }}{% endfor %}":                ContentOpenAI,
		"{% for m in messages %}{% if m.content is string %}{% else %}{% for p in m.content %}{% endfor %}{% endif %}{% endfor %}":       ContentOpenAI,
		"{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}{% endfor %}":                                ContentString,
		"{% for t in tools %}{% for p in t.content %}{% endfor %}{% endfor %}{% for m in messages %}{{ m.role }}{% endfor %}":            ContentString,
		"{% for m in messages %}{{ m.content|map(attribute='text')|join if m.content is not string else m.content }}{{ 1 }}{% endfor %}": ContentString,
	} {
		tmpl, err := NewTemplate(source, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if got := tmpl.ContentFormat(); got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
		tmpl.Close()
	}
	for file, want := range map[string]string{"gemma": ContentOpenAI, "deepseek": ContentString, "parts": ContentOpenAI, "thinking": ContentOpenAI, "llama3": ContentString, "qwen2": ContentString, "smollm2": ContentString} {
		b, err := os.ReadFile("testdata/templates/" + file + ".jinja")
		if err != nil {
			t.Fatal(err)
		}
		tmpl, err := NewTemplate(string(b), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if got := tmpl.ContentFormat(); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
		tmpl.Close()
	}
}

// TestTemplateClock checks that strftime_now uses the wall clock of now's zone.
func TestTemplateClock(t *testing.T) {
	tmpl, err := NewTemplate("{{ strftime_now('%d %b %Y %H:%M') }}", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer tmpl.Close()
	now := time.Date(2024, 2, 29, 23, 30, 0, 0, time.UTC)
	for zone, want := range map[int]string{0: "29 Feb 2024 23:30", 3600: "01 Mar 2024 00:30", -7200: "29 Feb 2024 21:30"} {
		if got, err := tmpl.RenderAt(now.In(time.FixedZone("", zone)), struct{}{}); err != nil || got != want {
			t.Errorf("zone %d: %q, %v, want %q", zone, got, err, want)
		}
	}
}

func TestTemplateVars(t *testing.T) {
	tmpl, err := NewTemplate("{% for k, v in x.items() %}{{ k }}={{ v }};{% endfor %}{{ x|tojson }}", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer tmpl.Close()
	got, err := tmpl.Render([]byte(`{"x":{"z":1,"a":2.0,"m":"\u0000<"}}`))
	if want := "z=1;a=2.0;m=\x00<;{\"z\": 1, \"a\": 2.0, \"m\": \"\\u0000<\"}"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for _, bad := range []any{[]byte("[]"), []byte("{"), nil, 1, func() {}, []byte(strings.Repeat(`{"a":`, 1000))} {
		_, err := tmpl.Render(bad)
		var e *TemplateError
		if !errors.As(err, &e) || e.Kind != KindVars {
			t.Errorf("%.20v: %v", bad, err)
		}
	}
}

func TestTemplateErrors(t *testing.T) {
	for source, want := range map[string]string{
		"a\n\n{{ nope.x }}":                  "chat template: line 3: 'nope' is undefined",
		"\n{{ m.nope.x }}":                   "chat template: line 2: 'dict object' has no attribute 'nope'",
		"\n{% if %}":                         "chat template: line 2: syntax error: unexpected end of block",
		"{{ f() }}":                          "chat template: line 1: unknown function: f is unknown",
		"{{ raise_exception('only\none') }}": "chat template: only\none",
		"{% for x in none %}{% endfor %}":    "chat template: line 1: invalid operation: 'NoneType' object is not iterable",
		"{{ m.secret + 1 }}":                 "chat template: line 1: invalid operation: tried to use + operator on unsupported types string and number",
		"{% macro f() %}\n{{ m.a.b }}{% endmacro %}{{ f() }}": "chat template: line 2: 'dict object' has no attribute 'a'",
	} {
		tmpl, err := NewTemplate(source, Limits{})
		if err == nil {
			_, err = tmpl.Render([]byte(`{"m":{"secret":"s3cret"}}`))
		}
		if err == nil || err.Error() != want || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s:\n got %v\nwant %s", source, err, want)
		}
	}
}

func TestTemplateGoroutines(t *testing.T) {
	tmpl, err := NewTemplate("{% for i in range(n) %}{{ i }},{% endfor %}{{ strftime_now('%Y') }}", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer tmpl.Close()
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			var want strings.Builder
			for i := range n {
				fmt.Fprintf(&want, "%d,", i)
			}
			fmt.Fprint(&want, 2000+n)
			for range 20 {
				now := time.Date(2000+n, 1, 1, 0, 0, 0, 0, time.UTC)
				if got, err := tmpl.RenderAt(now, map[string]int{"n": n}); err != nil || got != want.String() {
					t.Errorf("%d: %q, %v", n, got, err)
				}
			}
		})
	}
	wg.Wait()
}
