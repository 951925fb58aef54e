package dialect

import (
	"encoding/json"
	"strings"
)

// Turn is a message of a conversation for harmony's renderer.
type Turn struct {
	Role       string // system, developer, user, assistant, tool
	Content    string
	Reasoning  string
	Calls      []Call
	Name       string // of the function, in a turn of a tool
	ToolCallID string // of the call that a tool's turn answers, if Name is ""
}

// HarmonyPrompt is a conversation that is rendered in harmony.
type HarmonyPrompt struct {
	Turns      []Turn
	Functions  []json.RawMessage
	Effort     string // low, medium, high; "": medium
	Date       string // YYYY-MM-DD
	Generation bool   // the prompt ends with the start of an assistant's message
}

// Render returns the prompt in the format that gpt-oss was trained on.
func (p *HarmonyPrompt) Render() string {
	var b strings.Builder
	p.system(&b)
	p.developer(&b)
	final := -1 // the last answer; reasoning before it is left out
	for i, t := range p.Turns {
		if t.Role == "assistant" && len(t.Calls) == 0 && t.Content != "" {
			final = i
		}
	}
	for i, t := range p.Turns {
		if i <= final {
			t.Reasoning = ""
		}
		p.turn(&b, i, t)
	}
	if p.Generation {
		b.WriteString(harmonyStart + "assistant")
	}
	return b.String()
}

// harmonyTurn writes one message.
func harmonyTurn(b *strings.Builder, header, body, end string) {
	b.WriteString(harmonyStart + header + harmonyMessage + body + end)
}

// system writes the system message.
func (p *HarmonyPrompt) system(b *strings.Builder) {
	effort := map[string]string{"": "medium", "minimal": "low", "xhigh": "high", "max": "high"}[p.Effort]
	if effort == "" {
		effort = p.Effort
	}
	text := "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\nCurrent date: " + p.Date +
		"\n\nReasoning: " + effort + "\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message."
	if len(p.Functions) > 0 {
		text += "\nCalls to these tools must go to the commentary channel: 'functions'."
	}
	harmonyTurn(b, "system", text, harmonyEnd)
}

// developer writes the developer message: the instructions of all system and developer
// turns, and the tools.
func (p *HarmonyPrompt) developer(b *strings.Builder) {
	var parts, instructions []string
	for _, t := range p.Turns {
		if (t.Role == "system" || t.Role == "developer") && t.Content != "" {
			instructions = append(instructions, t.Content)
		}
	}
	if len(instructions) > 0 {
		parts = append(parts, "# Instructions\n\n"+strings.Join(instructions, "\n\n"))
	}
	if len(p.Functions) > 0 {
		text := "# Tools\n\n## functions\n\nnamespace functions {\n\n"
		for _, f := range p.Functions {
			text += harmonyFunction(f) + "\n\n"
		}
		parts = append(parts, text+"} // namespace functions")
	}
	if len(parts) > 0 {
		harmonyTurn(b, "developer", strings.Join(parts, "\n\n"), harmonyEnd)
	}
}

// turn writes turn i.
func (p *HarmonyPrompt) turn(b *strings.Builder, i int, t Turn) {
	switch t.Role {
	case "system", "developer": // already in the developer message
	case "assistant":
		if t.Reasoning != "" {
			harmonyTurn(b, "assistant"+harmonyChannel+"analysis", t.Reasoning, harmonyEnd)
		}
		channel := "final"
		if len(t.Calls) > 0 {
			channel = "commentary"
		}
		if t.Content != "" {
			harmonyTurn(b, "assistant"+harmonyChannel+channel, t.Content, harmonyEnd)
		}
		for _, c := range t.Calls {
			header := "assistant" + harmonyChannel + "commentary to=functions." + c.Name + " " + harmonyConstrain + "json"
			harmonyTurn(b, header, orEmpty(c.Arguments), harmonyCall)
		}
	case "tool":
		harmonyTurn(b, "functions."+p.toolName(i, t)+" to=assistant"+harmonyChannel+"commentary", t.Content, harmonyEnd)
	default:
		harmonyTurn(b, t.Role, t.Content, harmonyEnd)
	}
}

// toolName returns the function of a tool's turn: its own name, that of the call that it
// answers, or that of the last call.
func (p *HarmonyPrompt) toolName(i int, t Turn) string {
	name := t.Name
	for j := i - 1; j >= 0 && name == ""; j-- {
		for k := len(p.Turns[j].Calls) - 1; k >= 0; k-- {
			if c := p.Turns[j].Calls[k]; t.ToolCallID == "" || c.ID == t.ToolCallID {
				name = c.Name
				break
			}
		}
	}
	return name
}
