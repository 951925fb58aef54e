package chat_test

import (
	"encoding/json"
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
)

// TestThinkingBudget checks the engine's bound on the reasoning, by dialect and prompt.
func TestThinkingBudget(t *testing.T) {
	conversation := func(kwargs string) *chat.Conversation {
		c := &chat.Conversation{Messages: []chat.Message{{Role: "user", Text: "hi"}}, AddGenerationPrompt: true}
		if kwargs != "" {
			c.TemplateKwargs = map[string]json.RawMessage{"enable_thinking": json.RawMessage(kwargs)}
		}
		return c
	}
	for _, x := range []struct {
		name, reasoning string
		chat            *chat.Conversation
		prompt          string
		rendered        bool
		budget          *int
		bound, inside   bool
		close           string
	}{
		{name: "none asked for", reasoning: "qwen3", chat: conversation("")},
		{name: "-1 is none", reasoning: "qwen3", chat: conversation(""), budget: ptr(-1)},
		{name: "a chat", reasoning: "qwen3", chat: conversation(""), budget: ptr(3), bound: true, inside: true, close: "</think>"},
		{name: "no thinking", reasoning: "qwen3", chat: conversation("false"), budget: ptr(3), bound: true, close: "</think>"},
		{name: "a text", reasoning: "qwen3", prompt: "hi", budget: ptr(0), bound: true, close: "</think>"},
		{name: "a text in a thought", reasoning: "qwen3", prompt: "hi<think>", budget: ptr(0), bound: true, inside: true, close: "</think>"},
		{name: "a text behind a thought", reasoning: "deepseek_r1", prompt: "<think>a</think>", budget: ptr(0), bound: true, close: "</think>"},
		{name: "a rendered chat", reasoning: "qwen3", prompt: "hi", rendered: true, budget: ptr(2), bound: true, inside: true, close: "</think>"},
		{name: "gemma", reasoning: "gemma4", chat: conversation("true"), budget: ptr(2), bound: true, close: "<channel|>"},
	} {
		m, set := &chattest.Model{}, chattest.Settings()
		set.Reasoning = x.reasoning
		a := chat.RequestParams{Chat: x.chat, ThinkingBudget: x.budget, Rendered: x.rendered}
		if x.chat == nil {
			ids, _ := m.Encode(x.prompt, false)
			a.Prompts = []chat.Prompt{{Tokens: ids}}
		}
		run, err := start(t, chattest.Service(m), a, set)
		if err != nil {
			t.Fatal(x.name, err)
		}
		run.Close()
		got := m.Requests()[0].Thinking
		if (got != nil) != x.bound {
			t.Errorf("%s: %+v", x.name, got)
			continue
		}
		if !x.bound {
			continue
		}
		if end, _ := m.Decode(got.Close, false); got.Budget != *x.budget || got.Inside != x.inside || end != x.close || got.Ends[0].Text != x.close {
			t.Errorf("%s: %+v, closed by %q", x.name, got, end)
		}
	}
}

// TestThinkingMustEnd checks that parameters that forbid the end token of reasoning are
// refused, and that a budget is refused in dialects whose reasoning cannot be ended.
func TestThinkingMustEnd(t *testing.T) {
	for _, x := range []struct {
		reasoning, tools string
		change           func(*chat.RequestParams)
		param            string
	}{
		{"qwen3", "", func(*chat.RequestParams) {}, ""},
		{"qwen3", "", func(a *chat.RequestParams) { a.AllowedTokenIDs = []int32{'<', 'a'} }, "allowed_token_ids"},
		{"qwen3", "", func(a *chat.RequestParams) { a.AllowedTokenIDs = []int32{'<', '/', 't', 'h', 'i', 'n', 'k', '>'} }, ""},
		{"qwen3", "", func(a *chat.RequestParams) { a.BadWords = []string{"ok", "no>"} }, "bad_words"},
		{"openai_gptoss", "openai", func(*chat.RequestParams) {}, "thinking_token_budget"},
		{"", "", func(*chat.RequestParams) {}, "thinking_token_budget"},
		{"", "", func(a *chat.RequestParams) { a.ThinkingHint = true }, ""},
		{"openai_gptoss", "openai", func(a *chat.RequestParams) { a.ThinkingHint = true }, ""},
	} {
		set := chattest.Settings()
		set.Reasoning, set.Tools = x.reasoning, x.tools
		a := chat.RequestParams{Prompts: text("hi"), ThinkingBudget: ptr(4)}
		x.change(&a)
		run, err := start(t, chattest.Service(&chattest.Model{}), a, set)
		if err == nil {
			run.Close()
		}
		var e *chat.Error
		if err != nil {
			e = chat.AsError(err)
		}
		if (e == nil) != (x.param == "") || e != nil && (e.Param != x.param || e.Kind != chat.Invalid) {
			t.Errorf("%+v: %v", x, err)
		}
	}
}
