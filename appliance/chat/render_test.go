package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine/tokenizer"
)

// showing is a template that renders its variables, or fails.
type showing struct {
	format string
	err    error
	vars   *string
}

func (s showing) ContentFormat() string { return s.format }

func (s showing) Render(_ context.Context, vars []byte) (string, error) {
	*s.vars = string(vars)
	return "p", s.err
}

func TestVariables(t *testing.T) {
	thought := "hm"
	c := chat.Conversation{
		Messages: []chat.Message{
			{Role: "system", Text: "<&>", HasContent: true, Name: "n"},
			{Role: "assistant", Reasoning: &thought, ToolCalls: []chat.ToolCall{
				{ID: "1", Name: "f", Arguments: `{"z": 1, "a": 1.0}`}, {Name: "g", Arguments: "not json"}, {Name: "h"},
			}},
			{Role: "tool", ToolCallID: "1", Parts: []chat.Part{{Type: "text", Text: "a"}, {Type: "text", Text: "b"}}, HasContent: true},
		},
		Tools:               []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"f","b":0,"a":0}}`)},
		TemplateKwargs:      map[string]json.RawMessage{"x": json.RawMessage("2"), "messages": json.RawMessage("[]")},
		ReasoningEffort:     "none",
		AddGenerationPrompt: true,
	}
	const calls = `"tool_calls":[{"function":{"arguments":{"z":1,"a":1.0},"name":"f"},"id":"1","type":"function"},` +
		`{"function":{"arguments":"not json","name":"g"},"type":"function"},{"function":{"arguments":{},"name":"h"},"type":"function"}]`
	for format, want := range map[string]string{
		tokenizer.ContentString: `{"add_generation_prompt":true,"bos_token":"\u003cbos\u003e","documents":null,"enable_thinking":false,` +
			`"eos_token":"\u003ceos\u003e","messages":[{"content":"\u003c\u0026\u003e","name":"n","role":"system"},` +
			`{"content":"","reasoning":"hm","reasoning_content":"hm","role":"assistant",` + calls + `},` +
			`{"content":"a\nb","role":"tool","tool_call_id":"1"}],"reasoning_effort":"none",` +
			`"tools":[{"type":"function","function":{"name":"f","b":0,"a":0}}],"w":1,"x":2}`,
		tokenizer.ContentOpenAI: `{"add_generation_prompt":true,"bos_token":"\u003cbos\u003e","documents":null,"enable_thinking":false,` +
			`"eos_token":"\u003ceos\u003e","messages":[{"content":[{"text":"\u003c\u0026\u003e","type":"text"}],"name":"n","role":"system"},` +
			`{"content":[],"reasoning":"hm","reasoning_content":"hm","role":"assistant",` + calls + `},` +
			`{"content":[{"text":"a","type":"text"},{"text":"b","type":"text"}],"role":"tool","tool_call_id":"1"}],"reasoning_effort":"none",` +
			`"tools":[{"type":"function","function":{"name":"f","b":0,"a":0}}],"w":1,"x":2}`,
	} {
		var got string
		set := chattest.Settings()
		set.TemplateKwargs = map[string]json.RawMessage{"x": json.RawMessage("1"), "w": json.RawMessage("1")}
		set.ToolTemplate = showing{format: format, vars: &got}
		if _, err := start(t, chattest.Service(&chattest.Model{}), chat.RequestParams{Chat: &c}, set); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", format, got, want)
		}
	}
}

func TestTemplateErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind chat.Kind
		text string
	}{
		{&tokenizer.TemplateError{Kind: tokenizer.KindRaised, Line: 3, Msg: "no system"}, chat.Invalid, "no system"},
		{&tokenizer.TemplateError{Kind: tokenizer.KindSteps, Line: 3, Msg: "out of steps"}, chat.Invalid, "chat template: line 3: out of steps"},
		{&tokenizer.TemplateError{Kind: tokenizer.KindSandbox, Msg: "fork"}, chat.Internal, "Internal server error."},
		{&tokenizer.TemplateError{Kind: tokenizer.KindBusy, Msg: "too many wait"}, chat.Overloaded, "The chat template could not be rendered: too many wait. Please try again later."},
		{&tokenizer.TemplateError{Kind: tokenizer.KindUnavailable, Msg: "EMFILE"}, chat.Unavailable, "The chat template cannot be rendered now. Please try again later."},
		{&tokenizer.TemplateError{Kind: tokenizer.KindUnsupported, Msg: "linux only"}, chat.Unsupported, "The chat template cannot be rendered here: linux only."},
		{errors.New("x"), chat.Internal, "Internal server error."},
	} {
		var got string
		set := chattest.Settings()
		set.Template = showing{err: c.err, vars: &got}
		ask := chat.RequestParams{Chat: &chat.Conversation{Messages: []chat.Message{{Role: "user"}}, AddGenerationPrompt: true}}
		_, err := start(t, chattest.Service(&chattest.Model{}), ask, set)
		if e := chat.AsError(err); e.Kind != c.kind || e.Message != c.text {
			t.Errorf("%v: got %v %q", c.err, e.Kind, e.Message)
		}
	}
}

// TestContinue checks that the prompt ends right after the text of the last message, with its
// trailing white space if the template kept that.
func TestContinue(t *testing.T) {
	for _, c := range []struct{ rendered, last, want string }{
		{"[u]x[a]so far<end>", "so far", "[u]x[a]so far"},
		{"[u]x[a]so far<end>", "so far  ", "[u]x[a]so far"},
		{"[u]x[a]so far  <end>", "so far  ", "[u]x[a]so far  "},
		{"[u]so[a]  so<end>", "  so", "[u]so[a]  so"},
		{"[a]so[a]so<end>", "so", "[a]so[a]so"},
		{"[a]other<end>", "so", ""},
	} {
		m := &chattest.Model{}
		set := chattest.Settings()
		set.Template = fixed(c.rendered)
		ask := chat.RequestParams{Chat: &chat.Conversation{Messages: []chat.Message{{Role: "assistant", Text: c.last, HasContent: true}}, ContinueFinal: true}}
		_, err := start(t, chattest.Service(m), ask, set)
		if c.want == "" {
			if chat.AsError(err).Kind != chat.Invalid {
				t.Errorf("%q: got %v", c.last, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := m.Decode(m.Requests()[0].Prompt, false); got != c.want {
			t.Errorf("%q continued in %q: got %q, want %q", c.last, c.rendered, got, c.want)
		}
	}
}

// fixed is a template that always renders the same text.
type fixed string

func (fixed) ContentFormat() string { return tokenizer.ContentString }

func (f fixed) Render(context.Context, []byte) (string, error) { return string(f), nil }

// TestDoubledBOS checks that encoding does not double a template's own BOS.
func TestDoubledBOS(t *testing.T) {
	m := &chattest.Model{}
	set := chattest.Settings()
	set.Template = fixed("<bos>x")
	ask := chat.RequestParams{Chat: &chat.Conversation{Messages: []chat.Message{{Role: "user"}}}, AddSpecialTokens: true}
	if _, err := start(t, chattest.Service(m), ask, set); err != nil {
		t.Fatal(err)
	}
	if p := m.Requests()[0].Prompt; len(p) != 2 || p[0] != chattest.BOS {
		t.Errorf("prompt %v", p)
	}
}
