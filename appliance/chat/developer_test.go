package chat_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/engine"
)

// TestDeveloperTools checks that the functions of a developer message are in harmony's
// prompt, and that their calls are parsed.
func TestDeveloperTools(t *testing.T) {
	m := &chattest.Model{Say: func(engine.Request, int) chattest.Script {
		return chattest.Script{Text: `<|channel|>commentary to=functions.g <|constrain|>json<|message|>{"x":1}<|call|>`}
	}}
	set := chattest.Settings()
	set.Reasoning, set.Tools, set.AutoToolChoice, set.DialectPrompt = "openai_gptoss", "openai", true, true
	tool := func(name string) json.RawMessage {
		return json.RawMessage(`{"type":"function","function":{"name":"` + name + `","description":"Does it.","parameters":{"type":"object","properties":{"x":{"type":"integer"}}}}}`)
	}
	const want = "<|start|>developer<|message|># Instructions\n\nBe brief.\n\n# Tools\n\n## functions\n\nnamespace functions {\n\n"
	for _, own := range [][]json.RawMessage{nil, {tool("f")}} {
		a := chat.RequestParams{Chat: &chat.Conversation{
			Messages: []chat.Message{
				{Role: "developer", Text: "Be brief.", HasContent: true, Tools: []json.RawMessage{tool("g")}}, {Role: "user", Text: "hi", HasContent: true},
			},
			Tools: own, AddGenerationPrompt: true,
		}}
		first := "// Does it.\ntype g = (_: {\nx?: number,\n}) => any;\n\n"
		if own != nil {
			first, a.ToolChoice = strings.Replace(first, "type g", "type f", 1)+first, dialect.Auto
		}
		cfg := chattest.Config(m)
		cfg.ModelLen = 2000
		run, err := start(t, chat.New(cfg), a, set)
		if err != nil {
			t.Fatal(err)
		}
		replies, err := run.Wait(context.Background())
		if err != nil || len(replies) != 1 || len(replies[0].Calls) != 1 || replies[0].Calls[0].Name != "g" {
			t.Errorf("got %+v, %v", replies, err)
		}
		asked := m.Requests()
		prompt, _ := m.Decode(asked[len(asked)-1].Prompt, false)
		if !strings.Contains(prompt, want+first+"} // namespace functions<|end|>") || !strings.Contains(prompt, "'functions'.<|end|>") {
			t.Errorf("prompt %s", prompt)
		}
	}
}
