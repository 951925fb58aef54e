package anthropic

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/structured"
)

func decode(t *testing.T, rest string) (*Request, *chat.Error) {
	t.Helper()
	r, err := Decode([]byte(`{"max_tokens":5,` + rest + `}`))
	var bad *chat.Error
	if err != nil && !errors.As(err, &bad) {
		t.Fatalf("%v is no *chat.Error", err)
	}
	return r, bad
}

// TestConversation checks the mapping from turns to messages.
func TestConversation(t *testing.T) {
	thought := "ab"
	said := func(role, text string) chat.Message { return chat.Message{Role: role, Text: text, HasContent: true} }
	for body, want := range map[string][]chat.Message{
		`"messages":[{"role":"user","content":"hi"}]`:                                       {said("user", "hi")},
		`"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]`: {said("system", "s"), said("user", "hi")},
		`"system":[{"type":"text","text":"a"},{"type":"text","text":"x-anthropic-billing-header: y"},{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}],
		 "messages":[{"role":"user","content":"hi"}]`: {said("system", "ab"), said("user", "hi")},
		`"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`: {
			{Role: "user", HasContent: true, Parts: []chat.Part{{Type: "text", Text: "a"}, {Type: "text", Text: "b"}}},
		},
		`"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"a","signature":"x"},{"type":"redacted_thinking","data":"z"},
			{"type":"thinking","thinking":"b"},{"type":"text","text":"so"},{"type":"tool_use","id":"1","name":"f","input":{"x": 1}},{"type":"tool_use","id":"2","name":"g"}]}]`: {
			{
				Role: "assistant", HasContent: true, Text: "so", Reasoning: &thought,
				ToolCalls: []chat.ToolCall{{ID: "1", Name: "f", Arguments: `{"x":1}`}, {ID: "2", Name: "g", Arguments: "{}"}},
			},
		},
		`"messages":[{"role":"user","content":[{"type":"text","text":"and"},{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
			{"type":"tool_result","tool_use_id":"2","is_error":true}]}]`: {
			{Role: "tool", ToolCallID: "1", Text: "a\nb", HasContent: true}, {Role: "tool", ToolCallID: "2", HasContent: true}, said("user", "and"),
		},
		`"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"}]}]`: {
			{Role: "tool", ToolCallID: "1", Text: "r", HasContent: true},
		},
	} {
		r, bad := decode(t, body)
		if bad != nil {
			t.Errorf("%s: %v", body, bad)
			continue
		}
		if d := cmp.Diff(want, r.Ask.Chat.Messages); d != "" {
			t.Errorf("%s: %s", body, d)
		}
	}
}

func TestToolChoice(t *testing.T) {
	const tool = `"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","description":"d","input_schema":{"z":1,"a":2},"cache_control":{}}]`
	for choice, want := range map[string][2]string{
		`null`: {"auto", ""}, `{"type":"auto","disable_parallel_tool_use":true}`: {"auto", ""}, `{"type":"none"}`: {"none", ""},
		`{"type":"any"}`: {"required", ""}, `{"type":"tool","name":"f"}`: {"named", "f"},
	} {
		r, bad := decode(t, tool+`,"tool_choice":`+choice)
		if bad != nil {
			t.Fatalf("%s: %v", choice, bad)
		}
		if got := [2]string{r.Ask.ToolChoice, r.Ask.ToolName}; got != want || r.Ask.OneCall != strings.Contains(choice, "parallel") {
			t.Errorf("%s: %v %v", choice, got, r.Ask.OneCall)
		}
		const function = `{"type":"function","function":{"name":"f","description":"d","parameters":{"z":1,"a":2}}}`
		if got := string(r.Ask.Chat.Tools[0]); got != function {
			t.Errorf("got  %s\nwant %s", got, function)
		}
	}
	if r, bad := decode(t, `"messages":[{"role":"user","content":"hi"}]`); bad != nil || r.Ask.ToolChoice != "none" {
		t.Errorf("without tools: %v", bad)
	}
}

func TestParameters(t *testing.T) {
	r, bad := decode(t, `"messages":[{"role":"user","content":"hi"}],"temperature":0.5,"top_p":0.9,"top_k":7,"stop_sequences":["a"],
		"output_config":{"effort":"high"},"thinking":{"type":"enabled","budget_tokens":2000},"metadata":{"user_id":"u"},"fancy":1`)
	if bad != nil {
		t.Fatal(bad)
	}
	a := r.Ask
	if *a.Temperature != 0.5 || *a.TopP != 0.9 || *a.TopK != 7 || *a.MaxTokens != 5 || a.Stop[0] != "a" || a.Chat.ReasoningEffort != "high" || a.HideReasoning || *a.ThinkingBudget != 2000 || !a.ThinkingHint {
		t.Errorf("%+v", a)
	}
	if d := cmp.Diff([]string{"fancy"}, r.Unknown); d != "" {
		t.Error(d)
	}
}

func TestRefusals(t *testing.T) {
	const hi = `"messages":[{"role":"user","content":"hi"}],`
	block := func(role, b string) string { return `"messages":[{"role":"` + role + `","content":[` + b + `]}]` }
	for body, param := range map[string]string{
		`"a":1`: "messages", `"messages":7`: "messages", `"messages":[1]`: "messages.0", `"messages":[{"role":"tool","content":"x"}]`: "messages.0.role",
		`"messages":[{"role":"user"}]`: "messages.0.content", `"messages":[{"role":"user","content":1}]`: "messages.0.content",
		block("user", `"x"`): "messages.0.content.0", block("user", `{"text":"x"}`): "messages.0.content.0.type",
		block("user", `{"type":"text"}`): "messages.0.content.0.text", block("user", `{"type":"tool_use","id":"1","name":"f"}`): "messages.0.content.0.type",
		block("assistant", `{"type":"tool_result","tool_use_id":"1"}`):                         "messages.0.content.0.type",
		block("assistant", `{"type":"tool_use","name":"f"}`):                                   "messages.0.content.0.id",
		block("assistant", `{"type":"tool_use","id":"1","name":"f","input":"x"}`):              "messages.0.content.0.input",
		block("user", `{"type":"tool_result"}`):                                                "messages.0.content.0.tool_use_id",
		block("user", `{"type":"tool_result","tool_use_id":"1","content":[{"type":"smell"}]}`): "messages.0.content.0.content.0.type",
		hi + `"system":7`: "system", hi + `"system":[{"type":"image"}]`: "system.0.type", hi + `"temperature":"x"`: "temperature",
		hi + `"top_k":1.5`: "top_k", hi + `"stop_sequences":"x"`: "stop_sequences", hi + `"stream":1`: "stream",
		hi + `"tools":[{"name":"f"}]`: "tools.0.input_schema", hi + `"tools":[{"input_schema":{}}]`: "tools.0.name",
		hi + `"tools":[{"name":"w","type":"web_search_20250305"}]`:                               "tools",
		hi + `"tools":[{"name":"f","input_schema":{}},{"name":"f","input_schema":{}}]`:           "tools.1.name",
		hi + `"tool_choice":{"type":"any"}`:                                                      "tool_choice",
		hi + `"tool_choice":{"type":"maybe"}`:                                                    "tool_choice.type",
		hi + `"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"g"}`: "tool_choice",
		hi + `"thinking":{"type":"deep"}`:                                                        "thinking.type",
		hi + `"thinking":7`:                                                                      "thinking",
		hi + `"output_config":{"effort":"most"}`:                                                 "output_config.effort",
		hi + `"output_config":{"format":{"type":"xml"}}`:                                         "output_config.format.type",
		hi + `"output_config":{"format":{"type":"json_schema"}}`:                                 "output_config.format.schema",
		hi + `"output_config":{"format":{"type":"json_schema","schema":7}}`:                      "output_config.format.schema",
		hi + `"mcp_servers":[{}]`:                                                                "mcp_servers",
		`"messages":[` + strings.Repeat(`1,`, maxItems) + `1]`:                                   "messages",
	} {
		if _, bad := decode(t, body); bad == nil || bad.Param != param {
			t.Errorf("%.120s: %v, want one about %s", body, bad, param)
		}
	}
}

func TestFormat(t *testing.T) {
	r, bad := decode(t, `"messages":[{"role":"user","content":"hi"}],"output_config":{"format":{"type":"json_schema","schema":{"type":"boolean"}}}`)
	if bad != nil {
		t.Fatal(bad)
	}
	if s := r.Ask.Structure; s == nil || s.Kind != structured.JSONSchema || !strings.Contains(s.Source, "boolean") || s.Param != "output_config.format.schema" {
		t.Errorf("%+v", s)
	}
}

func TestInput(t *testing.T) {
	for in, want := range map[string]string{``: `{}`, ` {"a": 1} `: `{"a": 1}`, `{"a":`: `{"INVALID_JSON":"{\"a\":"}`, `[1]`: `{"INVALID_JSON":"[1]"}`} {
		if got := string(input(in)); got != want || !json.Valid([]byte(got)) {
			t.Errorf("%q: %s", in, got)
		}
	}
}
