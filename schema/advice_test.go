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
