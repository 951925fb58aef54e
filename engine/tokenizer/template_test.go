//go:build cgo

package tokenizer

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var goldens = flag.String("goldens", "testdata/templates.json", "the cases of TestTemplates, as testdata/record.py writes them")

// recordedAt is the clock under which the goldens were recorded.
var recordedAt = time.Date(2024, 7, 26, 3, 4, 5, 0, time.UTC)

// golden is what transformers made of a template: text, a message it raised, or
// another failure, whose words are Python's own.
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
	b, err := os.ReadFile(*goldens)
	if err != nil {
		t.Fatal(err)
	}
	var cases []golden
	if err := json.Unmarshal(b, &cases); err != nil {
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
