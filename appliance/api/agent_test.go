package api

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
	"vapp.dev/engine/tokenizer"
)

// dump is a template that renders all messages as JSON.
type dump struct{}

func (dump) ContentFormat() string { return tokenizer.ContentString }

func (dump) Render(_ context.Context, vars []byte) (string, error) {
	var v struct {
		Messages json.RawMessage `json:"messages"`
	}
	err := json.Unmarshal(vars, &v)
	return string(v.Messages), err
}

// TestAgents checks a call, its result and an answer in every dialect. The second
// request, with the reasoning returned, gets the same prompt by previous_response_id and
// by sending the items.
func TestAgents(t *testing.T) {
	const turn = `[{"content":"hi","role":"user"},{"content":"","reasoning":"hm","reasoning_content":"hm","role":"assistant","tool_calls":[{"function":{"arguments":{"x":1},"name":"f"},"id":"call_1","type":"function"}]},{"content":"7","name":"f","role":"tool","tool_call_id":"call_1"}]`
	for _, d := range []struct {
		name, reasoning, tools, call, answer, want string
		harmony                                    bool
	}{
		{name: "hermes", reasoning: "qwen3", tools: "hermes", call: `<think>hm</think><tool_call>{"name": "f", "arguments": {"x":1}}</tool_call>`, answer: "</think>7.", want: turn},
		{name: "qwen3_coder", reasoning: "qwen3", tools: "qwen3_coder", call: "hm</think><tool_call><function=f><parameter=x>1</parameter></function></tool_call>", answer: "</think>7.", want: turn},
		{name: "gemma4", reasoning: "gemma4", tools: "gemma4", call: "<|channel>thought\nhm<channel|><|tool_call>call:f{x:1}<tool_call|>", answer: "7.", want: turn},
		{
			name: "harmony", reasoning: "openai_gptoss", tools: "openai", harmony: true,
			call:   `<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"x":1}<|call|>`,
			answer: "<|channel|>final<|message|>7.",
			want:   `<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"x":1}<|call|><|start|>functions.f to=assistant<|channel|>commentary<|message|>7<|end|>`,
		},
	} {
		t.Run(d.name, func(t *testing.T) {
			m := &chattest.Model{}
			m.Say = func(r engine.Request, _ int) chattest.Script {
				text := ""
				for _, id := range r.Prompt {
					text += m.TokenText(id)
				}
				if strings.Contains(text, "call_1") || strings.Contains(text, "functions.f to=assistant") {
					return chattest.Script{Text: d.answer}
				}
				return chattest.Script{Text: d.call}
			}
			set := testSettings()
			set.Chat.Reasoning, set.Chat.Tools, set.Chat.AutoToolChoice, set.Chat.DialectPrompt = d.reasoning, d.tools, true, d.harmony
			set.Chat.Template, set.Chat.NewCallID = dump{}, func() string { return "call_1" }
			cfg := chattest.Config(m)
			cfg.ModelLen = 2000
			c := testConfig(m)
			c.State, c.Responses = &state{chat.New(cfg), "ready"}, openStore(t, "")
			s := New(c, set)
			defer s.Close()
			tools := `"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{"x":{"type":"integer"}}}}]`
			result := `{"type":"function_call_output","call_id":"call_1","output":"7"}`
			first := turnOf(t, s, `{"input":"hi",`+tools+`}`)
			if kinds := first.kinds(); kinds != "reasoning function_call" {
				t.Fatalf("output %s: %s", kinds, first.Output)
			}
			items := `{"role":"user","content":"hi"},` + strings.Trim(string(first.Output), "[]") + "," + result
			for _, body := range []string{
				`{"previous_response_id":"` + first.ID + `","input":[` + result + `],` + tools + `}`,
				`{"input":[` + items + `],` + tools + `}`,
			} {
				if kinds := turnOf(t, s, body).kinds(); kinds != "message" {
					t.Errorf("an answer is %s", kinds)
				}
				asked := m.Requests()
				prompt := ""
				for _, id := range asked[len(asked)-1].Prompt {
					prompt += m.TokenText(id)
				}
				if !strings.Contains(prompt, d.want) {
					t.Errorf("prompt %s\nwant %s", prompt, d.want)
				}
			}
		})
	}
}

// agentReply is the part of a response that this test reads.
type agentReply struct {
	ID     string
	Output json.RawMessage
}

func (p agentReply) kinds() string {
	var list []struct{ Type string }
	_ = json.Unmarshal(p.Output, &list)
	var out []string
	for _, item := range list {
		out = append(out, item.Type)
	}
	return strings.Join(out, " ")
}

func turnOf(t *testing.T, s *Server, body string) (out agentReply) {
	t.Helper()
	r := httptest.NewRequest("POST", "/v1/responses", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != 200 {
		t.Fatalf("%d %v %s", w.Code, err, w.Body)
	}
	return out
}
