package dialect

import "slices"

// Entry is a dialect as people choose it.
type Entry struct {
	Name    string   `json:"name"`
	Aliases []string `json:"aliases,omitempty"`
	Models  string   `json:"models"`
	Example string   `json:"example"` // of what a model writes
}

// reasoning is a reasoning parser.
type reasoning struct {
	Entry
	spec   *thinking
	always bool // whatever enable_thinking says
}

// tools is a parser of tool calls.
type tools struct {
	Entry
	body   func(*Parser) machine
	render func(*Message) string // the calls of a message, behind its content
	newID  func() string         // nil: chatcmpl-tool-…
	marks  []string
}

func reasonings() []reasoning {
	return []reasoning{
		{Entry: Entry{Name: "deepseek_r1", Models: "DeepSeek-R1 and its distills", Example: "<think>2 + 2 is 4</think>It is 4."}, spec: deepseekR1, always: true},
		{Entry: Entry{Name: "qwen3", Models: "Qwen3, Qwen3.5", Example: "<think>\n2 + 2 is 4\n</think>\n\nIt is 4."}, spec: qwen3},
		{Entry: Entry{Name: "gemma4", Models: "Gemma 4", Example: "<|channel>thought\n2 + 2 is 4<channel|>It is 4."}, spec: gemma4Thinking, always: true},
	}
}

func toolList() []tools {
	return []tools{
		{
			Entry: Entry{Name: "gemma4", Models: "Gemma 4", Example: `<|tool_call>call:greet{name:<|"|>Ada<|"|>,times:2}<tool_call|>`},
			body:  newGemma4, render: renderGemma4, marks: gemmaMarkers,
		},
		{
			Entry: Entry{
				Name: "qwen3_coder", Aliases: []string{"qwen3_xml"}, Models: "Qwen3-Coder, Qwen3.5",
				Example: "<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n</function>\n</tool_call>",
			},
			body: newQwenCoder, render: renderQwenCoder, marks: coderMarkers[:2],
		},
		{
			Entry: Entry{Name: "hermes", Models: "Hermes, Qwen2.5, Qwen3", Example: `<tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>`},
			body:  newHermes, render: renderHermes, marks: hermesMarkers,
		},
	}
}

// Reasonings lists the reasoning parsers.
func Reasonings() []Entry {
	var out []Entry
	for _, r := range reasonings() {
		out = append(out, r.Entry)
	}
	return out
}

// Tools lists the parsers of tool calls.
func Tools() []Entry {
	var out []Entry
	for _, t := range toolList() {
		out = append(out, t.Entry)
	}
	return out
}

func findReasoning(name string) (reasoning, bool) {
	for _, r := range reasonings() {
		if r.is(name) {
			return r, true
		}
	}
	return reasoning{}, false
}

func findTool(name string) (tools, bool) {
	for _, t := range toolList() {
		if t.is(name) {
			return t, true
		}
	}
	return tools{}, false
}

func (e *Entry) is(name string) bool { return e.Name == name || slices.Contains(e.Aliases, name) }

// Markers are all that a vocabulary may have as one token.
func Markers() []string {
	var out []string
	for _, r := range reasonings() {
		if r.spec != nil {
			out = append(out, r.spec.open, r.spec.close)
		}
	}
	for _, t := range toolList() {
		out = append(out, t.marks...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Render writes a message as the model would: what Parse makes of it is the
// message again. The names are those of Options; "" leaves that part out.
func Render(reasoning, tools string, m Message) (string, error) {
	if err := Check(reasoning, tools); err != nil {
		return "", err
	}
	text := ""
	if r, ok := findReasoning(reasoning); ok && m.Reasoning != "" {
		text = r.spec.open + r.spec.label + m.Reasoning + r.spec.close
	} else if ok && r.spec.inside {
		text = r.spec.close
	}
	text += m.Content
	if t, ok := findTool(tools); ok && len(m.Calls) > 0 {
		text += t.render(&m)
	}
	return text, nil
}
