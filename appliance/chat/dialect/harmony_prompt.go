package dialect

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Turn is a message of a conversation that harmony's renderer writes.
type Turn struct {
	Role       string // system, developer, user, assistant, tool
	Content    string
	Reasoning  string
	Calls      []Call
	Name       string // of the function, in a tool's turn
	ToolCallID string // the call that a tool's turn answers, where Name is ""
}

// HarmonyPrompt is a conversation in harmony.
type HarmonyPrompt struct {
	Turns      []Turn
	Functions  []json.RawMessage
	Effort     string // low, medium, high; "": medium
	Date       string // YYYY-MM-DD
	Generation bool   // the assistant speaks next
}

// Render writes the prompt that gpt-oss was trained on.
func (p *HarmonyPrompt) Render() string {
	var b strings.Builder
	p.system(&b)
	p.developer(&b)
	final := -1 // the last answer: thoughts before it are forgotten
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

func harmonyTurn(b *strings.Builder, header, body, end string) {
	b.WriteString(harmonyStart + header + harmonyMessage + body + end)
}

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

// developer writes the instructions of all turns that have some, and the tools.
func (p *HarmonyPrompt) developer(b *strings.Builder) {
	var parts, instructions []string
	for _, t := range p.Turns {
		if t.Role == "system" || t.Role == "developer" {
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

func (p *HarmonyPrompt) turn(b *strings.Builder, i int, t Turn) {
	switch t.Role {
	case "system", "developer": // told already
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

// toolName is the function that a tool's turn speaks for: its own name, that of the
// call it answers, or that of the last call.
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

// harmonyFunction writes a tool as a TypeScript type.
func harmonyFunction(raw json.RawMessage) string {
	var tool struct {
		Function struct {
			Name, Description string
			Parameters        json.RawMessage
		}
	}
	// what is no function is refused before it is rendered
	_ = json.Unmarshal(raw, &tool)
	f := tool.Function
	text := harmonyComment(f.Description) + "type " + f.Name + " = "
	s := typeScript(f.Parameters)
	if len(s.properties()) == 0 {
		return text + "() => any;"
	}
	return text + "(_: " + s.object(0) + ") => any;"
}

// harmonyComment writes a description, one comment a line.
func harmonyComment(text string) string {
	if text == "" {
		return ""
	}
	return "// " + strings.ReplaceAll(text, "\n", "\n// ") + "\n"
}

// typeScript is a JSON Schema, keys in their order.
type typeScript json.RawMessage

func (s typeScript) get(key string) json.RawMessage {
	for _, m := range members(string(s)) {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

func (s typeScript) properties() []member { return members(string(s.get("properties"))) }

func (s typeScript) strings(key string) []string {
	var one string
	var list []string
	raw := s.get(key)
	if json.Unmarshal(raw, &one) == nil && one != "" {
		return []string{one}
	}
	_ = json.Unmarshal(raw, &list) // another type is none
	return list
}

func (s typeScript) list(key string) []typeScript {
	var list []json.RawMessage
	_ = json.Unmarshal(s.get(key), &list) // another type is none
	out := make([]typeScript, len(list))
	for i, x := range list {
		out[i] = typeScript(x)
	}
	return out
}

// object writes the properties of an object.
func (s typeScript) object(depth int) string {
	required := map[string]bool{}
	for _, name := range s.strings("required") {
		required[name] = true
	}
	text := "{\n"
	for _, m := range s.properties() {
		p := typeScript(m.value)
		description, _ := unquote(p.get("description"))
		optional := "?"
		if required[m.key] {
			optional = ""
		}
		text += harmonyComment(description) + m.key + optional + ": " + p.of(depth+1) + ","
		if d := p.get("default"); d != nil {
			text += " // default: " + (member{value: d}).plain()
		}
		text += "\n"
	}
	return text + "}"
}

// of is the type of a value.
func (s typeScript) of(depth int) string {
	if depth > maxDepth {
		return "any"
	}
	for _, word := range []string{"oneOf", "anyOf"} {
		if list := s.list(word); len(list) > 0 {
			text := ""
			for _, x := range list {
				text += "\n | " + x.of(depth+1)
				if d, _ := unquote(x.get("description")); d != "" {
					text += " // " + strings.ReplaceAll(d, "\n", " ")
				}
			}
			return text + "\n"
		}
	}
	var kinds []string
	for _, name := range s.strings("type") {
		kinds = append(kinds, s.named(name, depth))
	}
	if len(kinds) == 0 {
		kinds = []string{"any"}
	}
	if string(s.get("nullable")) == "true" {
		kinds = append(kinds, "null")
	}
	return strings.Join(kinds, " | ")
}

// named is the type of one of JSON Schema's words.
func (s typeScript) named(word string, depth int) string {
	switch word {
	case "string":
		var options []string
		for _, o := range s.list("enum") {
			if text, is := unquote(o); is {
				options = append(options, fmt.Sprintf("%q", text))
			}
		}
		if len(options) > 0 {
			return strings.Join(options, " | ")
		}
		return "string"
	case "integer", "number":
		return "number"
	case "boolean", "null":
		return word
	case "array":
		items := s.get("items")
		if items == nil {
			return "any[]"
		}
		item := typeScript(items).of(depth + 1)
		if strings.Contains(item, " | ") {
			item = "(" + item + ")"
		}
		return item + "[]"
	case "object":
		if len(s.properties()) == 0 {
			return "object"
		}
		return s.object(depth)
	}
	return "any"
}
