package dialect

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestHarmonyTools compares rendered tools with those of openai-harmony in
// testdata/harmony_tools.json, which testdata/record_harmony.py recorded.
func TestHarmonyTools(t *testing.T) {
	b, err := os.ReadFile("testdata/harmony_tools.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name string
		Tool json.RawMessage
		Want []string // lines
	}
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		p := HarmonyPrompt{Functions: []json.RawMessage{c.Tool}}
		_, got, _ := strings.Cut(p.Render(), harmonyEnd)
		if want := strings.Join(c.Want, "\n"); got != want {
			t.Errorf("%s:\n got %s\nwant %s", c.Name, got, want)
		}
	}
}

// TestHarmonyNoParameters checks that a function whose parameters are {} is rendered like one
// without parameters.
func TestHarmonyNoParameters(t *testing.T) {
	for _, parameters := range []string{"", `,"parameters":null`, `,"parameters":{}`, `,"parameters":{ }`} {
		tool := json.RawMessage(`{"type":"function","function":{"name":"f"` + parameters + `}}`)
		if got := harmonyFunction(tool); got != "type f = () => any;" {
			t.Errorf("%s: %s", parameters, got)
		}
	}
}
