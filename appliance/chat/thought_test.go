//go:build cgo

package chat

import (
	"encoding/json"
	"strings"
	"testing"

	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/appliance/chat/structured"
)

// TestConstrainedThought checks in every dialect with reasoning that a constrained reply
// cannot end inside the reasoning, and that the content after it meets the constraint,
// whatever markers the reasoning contains.
func TestConstrainedThought(t *testing.T) {
	s, tok, ends := stopping(t)
	for _, c := range []struct {
		reasoning, tools, prompt string
		good                     map[string]string // replies and their content
		bad                      []string
	}{
		{
			"qwen3", "hermes", "<|im_start|>assistant\n<think>\n", map[string]string{
				"Hm.</think>{}": "{}", "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> free </think>{}": "{}", "a <think> b</think>{\"a\": \"</think>\"}": "",
			},
			[]string{"", "Hm.", "Hm. <tool_call>{", "Hm.</think>", "Hm.</think>free", "Hm.</think><think>b</think>{}"},
		},
		{"qwen3", "qwen3_coder", "", map[string]string{"Hm. <tool_call><function=f></function></tool_call>free</think>{}": "{}"}, []string{"Hm. <tool_call><function=f></function></tool_call>free"}},
		{
			"qwen3", "hermes", "<|im_start|>assistant\n<think>\n\n</think>\n\n", map[string]string{"{}": "{}"},
			[]string{"<think>free</think>{}", "free", "</think>{}"},
		},
		{"deepseek_r1", "", "<｜Assistant｜><think>\n", map[string]string{"Hm.</think>{}": "{}"}, []string{"Hm.", "Hm.</think>a"}},
		{"deepseek_r1", "", "<｜Assistant｜><think>\n</think>", map[string]string{"{}": "{}"}, []string{"<think>free</think>{}", "<think>free"}},
		{
			"gemma4", "gemma4", "<|turn>model\n", map[string]string{"{}": "{}", "<|channel>thought\nhm <|tool_call>call:f{}<tool_call|> free<channel|>{}": "{}"},
			[]string{"<|channel>thought\nhm", "<|channel>thought\nhm<|tool_call>", "<|channel>thought\nhm<channel|>free", "<|channel>a<channel|><|channel>b<channel|>{}", "free"},
		},
		{"mistral", "mistral", "[/INST]", map[string]string{"{}": "{}", "[THINK]hm[TOOL_CALLS]f[/THINK]{}": "{}"}, []string{"[THINK]hm", "[THINK]hm[/THINK]a", "[TOOL_CALLS]f[ARGS]{}"}},
		{"", "llama3_json", "", map[string]string{`{"name": "f", "parameters": {}}`: `{"name": "f", "parameters": {}}`}, []string{"<|python_tag|>{}", "free"}},
		{"", "mistral", "", map[string]string{`{"a": "[TOOL_CALLS]"}`: ""}, []string{"[TOOL_CALLS]f[ARGS]{}"}},
	} {
		r := toolRequest(c.reasoning, c.tools, dialect.None)
		r.params.Structure = &structured.Constraint{Kind: structured.JSONObject}
		x := &harmonyTable{t, s, tok, ends, r, c.reasoning + "+" + c.tools, c.prompt + " "}
		if c.prompt == "" {
			x.prompt = "hi"
		}
		for text, content := range c.good {
			if content == "" {
				x.stops(text) // a text cannot contain the marker's token
				continue
			}
			x.gives(text, content)
		}
		for _, text := range c.bad {
			x.stops(text)
		}
	}
}

// TestNoParameters checks that a function whose parameters are {} takes no arguments, like one
// without parameters.
func TestNoParameters(t *testing.T) {
	s, tok, ends := stopping(t)
	for _, parameters := range []string{"", `,"parameters":null`, `,"parameters":{}`, `,"parameters":{ }`} {
		for _, names := range [][2]string{{"", "hermes"}, {"openai_gptoss", "openai"}} {
			r := toolRequest(names[0], names[1], dialect.Named)
			r.params.Chat.Tools = []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"weather"` + parameters + `}}`)}
			x := &harmonyTable{t, s, tok, ends, r, names[1] + parameters, "<|start|>assistant"}
			head := strings.Repeat("<|channel|>commentary to=functions.weather json<|message|>", len(names[0])/10)
			x.gives(head+"{}", "", dialect.Call{Name: "weather", Arguments: "{}"})
			x.stops(head + `{"a": 1}`)
		}
	}
}
