package chat

import (
	"encoding/json"

	"vapp.dev/appliance/chat/dialect"
)

// renderHarmony renders a prompt with harmony's own renderer, which defines the format; the
// model's template only imitates it.
func (s *Service) renderHarmony(c *Conversation, set *Settings) (string, error) {
	p := dialect.HarmonyPrompt{Functions: c.AllTools(), Date: s.cfg.Now().Format("2006-01-02"), Generation: c.AddGenerationPrompt}
	if raw, is := c.kwargs(set)["reasoning_effort"]; is && json.Unmarshal(raw, &p.Effort) != nil {
		return "", invalid("chat_template_kwargs", "reasoning_effort must be a string.")
	}
	for _, m := range c.Messages {
		t := dialect.Turn{Role: m.Role, Content: m.text(), Name: m.Name, ToolCallID: m.ToolCallID}
		if m.Reasoning != nil {
			t.Reasoning = *m.Reasoning
		}
		for _, call := range m.ToolCalls {
			t.Calls = append(t.Calls, dialect.Call(call))
		}
		p.Turns = append(p.Turns, t)
	}
	text := p.Render()
	if c.ContinueFinal {
		return cutAfterFinal(text, c.Messages[len(c.Messages)-1])
	}
	return text, nil
}
