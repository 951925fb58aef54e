package api

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

// dialectReplies has the same reply in the form of several dialects.
var dialectReplies = map[string]string{
	"qwen3+hermes":         `hm</think>Ok.<tool_call>{"name": "weather", "arguments": {"city": "Zürich"}}</tool_call>`,
	"qwen3+qwen3_coder":    "hm</think>Ok.<tool_call><function=weather><parameter=city>Zürich</parameter></function></tool_call>",
	"gemma4+gemma4":        `<|channel>thought` + "\n" + `hm<channel|>Ok.<|tool_call>call:weather{city:<|"|>Zürich<|"|>}<tool_call|>`,
	"openai_gptoss+openai": `<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>Ok.<|end|><|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{"city": "Zürich"}<|call|>`,
}

// TestClientCallsATool checks that openai-go reads and answers the call of every
// dialect, from a reply and from a stream with its own accumulator.
func TestClientCallsATool(t *testing.T) {
	for name, text := range dialectReplies {
		t.Run(name, func(t *testing.T) {
			m := &chattest.Model{Say: func(engine.Request, int) chattest.Script { return chattest.Script{Text: text} }}
			set := testSettings()
			set.Chat.Reasoning, set.Chat.Tools, _ = strings.Cut(name, "+")
			set.Chat.AutoToolChoice = true
			cfg := chattest.Config(m)
			cfg.ModelLen = 600
			s := New(Config{State: &state{chat.New(cfg), "ready"}, NewID: func() string { return "id" }, Log: slog.New(slog.DiscardHandler)}, set)
			server := httptest.NewServer(s.Handler())
			defer server.Close()
			client := openai.NewClient(option.WithBaseURL(server.URL+"/v1/"), option.WithAPIKey("none"), option.WithMaxRetries(0))
			p := openai.ChatCompletionNewParams{
				Model: "test", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")},
				Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
					Name: "weather", Parameters: openai.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}},
				})},
			}
			whole, err := client.Chat.Completions.New(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			checkCall(t, whole.Choices[0])
			var sum openai.ChatCompletionAccumulator
			reasoning, finished := "", 0
			stream := client.Chat.Completions.NewStreaming(t.Context(), p)
			for stream.Next() {
				chunk := stream.Current()
				if !sum.AddChunk(chunk) {
					t.Fatalf("the accumulator refuses %s", chunk.RawJSON())
				}
				if _, is := sum.JustFinishedToolCall(); is {
					finished++
				}
				if r, is := chunk.Choices[0].Delta.JSON.ExtraFields["reasoning"]; is {
					reasoning += strings.Trim(r.Raw(), `"`)
				}
			}
			if err := stream.Err(); err != nil {
				t.Fatal(err)
			}
			checkCall(t, sum.Choices[0])
			if reasoning != "hm" || finished != 1 {
				t.Errorf("reasoning %q, %d finished calls", reasoning, finished)
			}
			reply := whole.Choices[0].Message
			p.Messages = append(p.Messages, reply.ToParam(), openai.ToolMessage("sunny", reply.ToolCalls[0].ID))
			if _, err := client.Chat.Completions.New(t.Context(), p); err != nil {
				t.Errorf("the tool's answer: %v", err)
			}
		})
	}
}

func checkCall(t *testing.T, c openai.ChatCompletionChoice) {
	t.Helper()
	m := c.Message
	if c.FinishReason != "tool_calls" || m.Content != "Ok." || len(m.ToolCalls) != 1 {
		t.Fatalf("%+v", c)
	}
	call := m.ToolCalls[0]
	if !strings.HasPrefix(call.ID, "chatcmpl-tool-") || call.Type != "function" || call.Function.Name != "weather" || call.Function.Arguments != `{"city": "Zürich"}` {
		t.Errorf("%+v", call)
	}
}
