package dialect

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestHarmonyPrompt compares rendered prompts with examples of the format's published
// description.
func TestHarmonyPrompt(t *testing.T) {
	b, err := os.ReadFile("testdata/harmony_prompt.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name   string
		Prompt HarmonyPrompt
		Want   []string // lines
	}
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if got, want := c.Prompt.Render(), strings.Join(c.Want, "\n"); got != want {
			t.Errorf("%s:\n got %s\nwant %s", c.Name, got, want)
		}
	}
}

// TestHarmonyHistory checks that a message rendered as history parses to the same message.
func TestHarmonyHistory(t *testing.T) {
	m := Message{Reasoning: "hm", Content: "I will look.", Calls: []Call{{ID: "1", Name: "f", Arguments: `{"x": 1}`}, {ID: "2", Name: "g", Arguments: "{}"}}}
	texts, err := Render(gptOSS, openAI, m)
	if err != nil {
		t.Fatal(err)
	}
	p := HarmonyPrompt{Turns: []Turn{{Role: "assistant", Reasoning: m.Reasoning, Content: m.Content, Calls: m.Calls}}}
	if got := p.Render(); !strings.HasSuffix(got, harmonyStart+"assistant"+texts) {
		t.Errorf("history %q does not end with the message: %q", got, texts)
	}
}
