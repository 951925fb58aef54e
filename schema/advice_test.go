package schema

import (
	"strings"
	"testing"
)

// TestAdviceHidesKeys checks that a line in the form of TOML does not show a key.
func TestAdviceHidesKeys(t *testing.T) {
	for _, line := range []string{`apiKeys = ["sk-hidden"]`, `serve.api_keys = ["sk-hidden"]`} {
		_, err := Parse("p.cue", []byte("import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\t"+line+"\n}\n"))
		if err == nil || strings.Contains(err.Error(), "hidden") || !strings.Contains(err.Error(), "write ") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestDecimalSuffix checks that numbers with a suffix of CUE are refused, each at its place.
func TestDecimalSuffix(t *testing.T) {
	_, err := Parse("p.cue", []byte("import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"a\"\n\tmodel: {source: \"a/b\", maxModelLen: 8K}\n\tmemory: kvCache: 2G\n}\n"))
	for _, want := range []string{`p.cue:5:38: 8K is a decimal number of CUE (K is 1,000): write "8K", with quotes`, `p.cue:6:19: 2G is`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
