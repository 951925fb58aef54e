package chat

import (
	"slices"
	"strconv"

	"vapp.dev/appliance/chat/dialect"
)

// checkTools refuses a tool_choice that the server's settings cannot serve. It sets the
// default tool_choice, and removes tools where tool_choice none excludes them.
func checkTools(a *RequestParams, s *Settings) error {
	c := a.Chat
	if c == nil {
		return nil
	}
	if a.ToolChoice == "" && s.AutoToolChoice && s.Tools != "" && c.OwnTools() != nil {
		a.ToolChoice = dialect.Auto
	}
	if s.ExcludeToolsWhenNone && (a.ToolChoice == dialect.None || a.ToolChoice == "") {
		without := *c
		without.Tools, without.Messages = nil, slices.Clone(c.Messages)
		for i := range without.Messages {
			without.Messages[i].Tools = nil
		}
		a.Chat, c = &without, &without
	}
	if c.ReasoningEffort == "none" && dialect.Harmony(s.Reasoning, s.Tools) {
		return invalid("reasoning_effort", "reasoning_effort=\"none\" is not supported by this model: ask for low, medium or high.")
	}
	choice := strconv.Quote(a.ToolChoice)
	if a.ToolChoice == dialect.Named {
		choice = "function " + strconv.Quote(a.ToolName)
	}
	switch {
	case a.ToolChoice == dialect.Auto && len(c.Tools) > 0 && (!s.AutoToolChoice || s.Tools == ""):
		return invalid("tool_choice", `"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set (parsers.autoToolChoice and parsers.toolCall of the profile)`)
	case a.ToolChoice != dialect.Required && a.ToolChoice != dialect.Named:
		return nil
	case s.Tools == "":
		return invalid("tool_choice", "tool_choice=%s requires --tool-call-parser to be set (parsers.toolCall of the profile)", choice)
	}
	return nil
}
