package structured

import (
	"encoding/json"
	"testing"

	"vapp.dev/appliance/chat/dialect"
)

// TestAliases checks that every alias of a tool dialect has the grammar of its name.
func TestAliases(t *testing.T) {
	list := []Function{{Name: "add", Parameters: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"}}}`), Strict: true}}
	for _, e := range dialect.Tools() {
		want, err := DialectCalls(e.Name, list, nil)
		if err != nil {
			t.Fatalf("%s: %v", e.Name, err)
		}
		for _, alias := range e.Aliases {
			if got, err := DialectCalls(alias, list, nil); err != nil || got != want {
				t.Errorf("%s: got %q, %v, want the grammar of %s: %q", alias, got, err, e.Name, want)
			}
		}
	}
}
