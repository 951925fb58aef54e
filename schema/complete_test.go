package schema

import (
	"slices"
	"testing"
)

// TestCompletions checks a number, a choice of words, a bool and a struct, and that every path is one
// of the definitions.
func TestCompletions(t *testing.T) {
	found := map[string]Completion{}
	for _, c := range Completions() {
		found[c.Path] = c
		f := fieldsOfProfile()
		for _, l := range labels(c.Path) {
			if f = f.member(l); f == nil {
				t.Fatalf("%s is no field", c.Path)
			}
		}
	}
	for path, want := range map[string][]string{
		"serve.port": {"8000"}, "log.level": {`"debug"`, `"error"`, `"info"`, `"warn"`}, "serve.accessLog": {"false", "true"}, "serve": nil,
	} {
		c, ok := found[path]
		if !ok || !slices.Equal(c.Values, want) || c.Struct != (path == "serve") || c.Allowed == "" {
			t.Errorf("%s: %+v, want values %q", path, c, want)
		}
	}
}
