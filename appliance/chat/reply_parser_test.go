package chat_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

// talk is a chat with a tool.
func talk() *chat.Conversation {
	return &chat.Conversation{
		Messages: []chat.Message{{Role: "user", Text: "hi"}}, AddGenerationPrompt: true,
		Tools: []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"f"}}`)},
	}
}

func mistral() chat.Settings {
	set := chattest.Settings()
	set.Tools, set.AutoToolChoice = "mistral", true
	return set
}

// say returns a model that generates a text, with "|" for the marker's token.
func say(text string) *chattest.Model {
	var ids []int32
	for _, b := range []byte(text) {
		if b == '|' {
			ids = append(ids, chattest.Calls)
		} else {
			ids = append(ids, int32(b))
		}
	}
	return &chattest.Model{Say: func(engine.Request, int) chattest.Script { return chattest.Script{Tokens: ids} }}
}

// TestMarkersAreTokens checks that a marker that is one token is recognized by its id, also
// with skip_special_tokens, and that the same characters in other tokens are text.
func TestMarkersAreTokens(t *testing.T) {
	for _, skip := range []bool{true, false} {
		m := say("a[TOOL_CALLS]b \xf0\x9f|f{\"x\": 1}|g{}")
		run, err := start(t, chattest.Service(m), chat.RequestParams{Chat: talk(), ToolChoice: "auto", SkipSpecialTokens: skip}, mistral())
		if err != nil {
			t.Fatal(err)
		}
		out, err := run.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := out[0]
		if r.Text != "a[TOOL_CALLS]b \ufffd" || r.Finish != "tool_calls" || len(r.Calls) != 2 || len(r.Calls[0].ID) != 9 {
			t.Fatalf("skip %v: %+v", skip, r)
		}
		if c := r.Calls; c[0].Name != "f" || c[0].Arguments != `{"x": 1}` || c[1].Name != "g" || c[1].Arguments != "{}" || c[0].ID == c[1].ID {
			t.Errorf("calls %+v", c)
		}
	}
}

// TestStopStringsNearMarkers checks that the deltas of a stream add up to the reply, with stop
// strings and markers in all positions.
func TestStopStringsNearMarkers(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	pieces := []string{"a", "ab", "|", "f{", "\"x\": 1}", "{}", "[", "]", "CALLS", "é", " "}
	for round := range 300 {
		text := ""
		for range r.IntN(9) {
			text += pieces[r.IntN(len(pieces))]
		}
		set := mistral()
		set.NewCallID = func() string { return "id" }
		a := chat.RequestParams{
			Chat: talk(), ToolChoice: "auto", SkipSpecialTokens: true, IncludeStop: r.IntN(2) == 0,
			Stop: [][]string{nil, {"b"}, {"CALLS"}, {"]f"}, {"a["}, {"S]"}}[r.IntN(6)],
		}
		run, err := start(t, chattest.Service(say(text)), a, set)
		if err != nil {
			t.Fatal(err)
		}
		var stream chat.Delta
		for {
			ds, err := run.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if ds == nil {
				break
			}
			for _, d := range ds {
				stream.Text += d.Text
				for _, c := range d.Calls {
					if c.Name != "" {
						stream.Calls = append(stream.Calls, chat.CallDelta{Index: c.Index, ID: c.ID, Name: c.Name})
					}
					stream.Calls[c.Index].Arguments += c.Arguments
				}
				stream.Finish, stream.Stop = d.Finish, d.Stop
			}
		}
		if run, err = start(t, chattest.Service(say(text)), a, set); err != nil {
			t.Fatal(err)
		}
		out, err := run.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		whole := out[0]
		if whole.Text != stream.Text || !reflect.DeepEqual(whole.Calls, stream.Calls) || whole.Finish != stream.Finish || whole.Stop != stream.Stop {
			t.Fatalf("round %d, %q, stop %q:\nstream %+v\nreply  %+v", round, text, a.Stop, stream, whole)
		}
		// text that is not a call is shown with its marker
		if _, rest, found := strings.Cut(whole.Text, "[TOOL_CALLS]"); found && nameOnly.MatchString(rest) {
			t.Fatalf("round %d, %q: markup in %q", round, text, whole.Text)
		}
	}
}

// nameOnly is a call of Mistral without its marker.
var nameOnly = regexp.MustCompile(`^[a-z_]+(\[ARGS\])?(\{|$)`)

// TestWhoMayCall checks that a tool_choice is refused if the server has no parser for it.
func TestWhoMayCall(t *testing.T) {
	for _, c := range []struct {
		set    func(*chat.Settings)
		choice string
		want   string
	}{
		{func(*chat.Settings) {}, "auto", ""},
		{func(s *chat.Settings) { s.AutoToolChoice = false }, "auto", "requires --enable-auto-tool-choice"},
		{func(s *chat.Settings) { s.Tools = "" }, "auto", "requires --enable-auto-tool-choice"},
		{func(s *chat.Settings) { s.Tools = "" }, "required", "requires --tool-call-parser"},
		{func(*chat.Settings) {}, "required", ""},
		{func(*chat.Settings) {}, "named", ""},
		{func(s *chat.Settings) { s.Tools = "" }, "none", ""},
	} {
		set := mistral()
		c.set(&set)
		_, err := start(t, chattest.Service(&chattest.Model{}), chat.RequestParams{Chat: talk(), ToolChoice: c.choice, ToolName: "f"}, set)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.choice, err, c.want)
		}
	}
}
