package chat

import "vapp.dev/appliance/chat/dialect"

// checkTools: who asks for calls needs a server that can read them.
func checkTools(a *Ask, s *Settings) error {
	c := a.Chat
	if c == nil {
		return nil
	}
	if s.ExcludeToolsWhenNone && (a.ToolChoice == dialect.None || a.ToolChoice == "") {
		without := *c
		without.Tools = nil
		a.Chat, c = &without, &without
	}
	if c.ReasoningEffort == "none" && dialect.Harmony(s.Reasoning, s.Tools) {
		return invalid("reasoning_effort", "reasoning_effort=\"none\" is not supported by this model: ask for low, medium or high.")
	}
	choice := a.ToolChoice
	if choice == dialect.Named {
		choice = a.ToolName
	}
	switch {
	case a.ToolChoice == dialect.Auto && len(c.Tools) > 0 && (!s.AutoToolChoice || s.Tools == ""):
		return invalid("tool_choice", `"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`)
	case a.ToolChoice != dialect.Required && a.ToolChoice != dialect.Named:
		return nil
	case s.Tools == "":
		return invalid("tool_choice", "tool_choice=%q requires --tool-call-parser to be set", choice)
	}
	return nil
}
