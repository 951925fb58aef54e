package dialect

import "slices"

// Entry describes a parser for users.
type Entry struct {
	Name    string   `json:"name"`
	Aliases []string `json:"aliases,omitempty"`
	Models  string   `json:"models"`
	Example string   `json:"example"` // of a model's output
}

// reasoning is a reasoning parser.
type reasoning struct {
	Entry
	spec   *thinking
	always bool // ignores enable_thinking
}

// tools is a parser of tool calls.
type tools struct {
	Entry
	body   func(*Parser) machine
	render func(*Message) string // renders the calls of a message, which follow its content
	newID  func() string         // nil: chatcmpl-tool-…
	marks  []string              // markers that a vocabulary may have as tokens
}

// reasonings returns the reasoning parsers.
func reasonings() []reasoning {
	return []reasoning{
		{Entry: Entry{Name: "deepseek_r1", Models: "DeepSeek-R1 and its distills", Example: "<think>2 + 2 is 4</think>It is 4."}, spec: deepseekR1, always: true},
		{Entry: Entry{Name: "qwen3", Models: "Qwen3, Qwen3.5", Example: "<think>\n2 + 2 is 4\n</think>\n\nIt is 4."}, spec: qwen3},
		{Entry: Entry{Name: "gemma4", Models: "Gemma 4", Example: "<|channel>thought\n2 + 2 is 4<channel|>It is 4."}, spec: gemma4Thinking, always: true},
		{Entry: Entry{Name: "mistral", Models: "Magistral", Example: "[THINK]2 + 2 is 4[/THINK]It is 4."}, spec: mistralThinking, always: true},
		{Entry: Entry{Name: gptOSS, Models: "gpt-oss, with tool calls by openai", Example: "<|channel|>analysis<|message|>2 + 2 is 4<|end|><|start|>assistant<|channel|>final<|message|>It is 4.<|return|>"}},
	}
}

// toolList returns the tool parsers.
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
		{
			Entry: Entry{Name: "llama3_json", Aliases: []string{"llama4_json"}, Models: "Llama 3.1, 3.2, 3.3", Example: `{"name": "add", "parameters": {"a": 2}}`},
			body:  newLlama3JSON, render: renderLlama3JSON, marks: llama3Markers,
		},
		{
			Entry: Entry{Name: "pythonic", Aliases: []string{"llama4_pythonic"}, Models: "Llama 3.2 and 4 with pythonic templates", Example: `[add(a=2, b=3), greet(name="Ada")]`},
			body:  newPythonic, render: renderPythonic, marks: pythonicMarkers,
		},
		{
			Entry: Entry{Name: "mistral", Models: "Mistral, Ministral, Devstral, Magistral", Example: `[TOOL_CALLS]add[ARGS]{"a": 2}`},
			body:  newMistral, render: renderMistral, newID: mistralCallName, marks: mistralMarkers,
		},
		{
			Entry: Entry{Name: openAI, Models: "gpt-oss, with the reasoning of openai_gptoss", Example: `<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 2}<|call|>`},
			body:  newHarmony, marks: harmonyMarkers,
		},
	}
}

// The names of harmony as a reasoning parser and as a tool parser. They must be combined.
const (
	gptOSS = "openai_gptoss"
	openAI = "openai"
)

// Harmony reports whether one of the names is that of harmony, which has its own prompt
// renderer.
func Harmony(reasoning, tools string) bool { return reasoning == gptOSS || tools == openAI }

// HarmonyStops returns the markers that end a reply in harmony.
func HarmonyStops() []string { return []string{harmonyReturn, harmonyCall} }

// Reasonings returns the reasoning parsers.
func Reasonings() []Entry {
	var out []Entry
	for _, r := range reasonings() {
		out = append(out, r.Entry)
	}
	return out
}

// Tools returns the tool call parsers.
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

// Markers returns all markers that a vocabulary may have as one token.
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

// Render writes a message as the model would, so that Parse returns the same message. The
// names are those of Options; with "", the part is left out.
func Render(reasoning, tools string, m Message) (string, error) {
	if err := Check(reasoning, tools); err != nil {
		return "", err
	}
	if Harmony(reasoning, tools) {
		return renderHarmony(m), nil
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
