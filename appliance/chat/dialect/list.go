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
	asked  bool // only if enable_thinking or thinking is true
}

// thinks reports whether a reply with these options may have reasoning. Some templates name
// the switch thinking, others enable_thinking.
func (r *reasoning) thinks(o *Options) bool {
	on := string(o.Kwargs["thinking"]) == "true" || string(o.Kwargs["enable_thinking"]) == "true"
	return r.always || on || !r.asked && o.thinks()
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
		{Entry: Entry{Name: "deepseek_r1", Aliases: []string{"minimax_m2", "olmo3", "step3", "step5"}, Models: "DeepSeek-R1 and its distills, MiniMax M2, OLMo 3, Step 3", Example: "<think>2 + 2 is 4</think>It is 4."}, spec: deepseekR1, always: true},
		{Entry: Entry{Name: "qwen3", Aliases: []string{"mimo"}, Models: "Qwen3, Qwen3.5, MiMo", Example: "<think>\n2 + 2 is 4\n</think>\n\nIt is 4."}, spec: qwen3},
		{Entry: Entry{Name: "deepseek_v3", Models: "DeepSeek-V3.1 and later, with enable_thinking or thinking", Example: "2 + 2 is 4</think>It is 4."}, spec: deepseekR1, asked: true},
		{Entry: Entry{Name: "glm45", Aliases: []string{"glm47"}, Models: "GLM-4.5, GLM-4.6, GLM-4.7", Example: "<think>2 + 2 is 4</think>It is 4."}, spec: glmThinking},
		{Entry: Entry{Name: "ernie45", Models: "ERNIE 4.5 Thinking", Example: "2 + 2 is 4\n</think>\n<response>\nIt is 4.\n</response>\n"}, spec: ernieThinking, always: true},
		{Entry: Entry{Name: "nemotron_v3", Models: "Nemotron 3", Example: "2 + 2 is 4\n</think>It is 4."}, spec: nemotron},
		{Entry: Entry{Name: "step3p5", Models: "Step 3.5", Example: "2 + 2 is 4\n</think>\nIt is 4."}, spec: nemotron, always: true},
		{Entry: Entry{Name: "seed_oss", Models: "Seed-OSS", Example: "<seed:think>2 + 2 is 4</seed:think>It is 4."}, spec: seedThinking},
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
				Name: "qwen3_coder", Aliases: []string{"qwen3_xml", "step3p5"}, Models: "Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5",
				Example: "<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n</function>\n</tool_call>",
			},
			body: qwenTags.newMachine, render: qwenTags.render, marks: qwenTags.outer(),
		},
		{
			Entry: Entry{Name: "seed_oss", Models: "Seed-OSS", Example: "<seed:tool_call>\n<function=add>\n<parameter=a>2</parameter>\n</function>\n</seed:tool_call>"},
			body:  seedTags.newMachine, render: seedTags.render, marks: seedTags.outer(),
		},
		{
			Entry: Entry{Name: "hermes", Aliases: []string{"qwen3_json", "granite4", "ernie45"}, Models: "Hermes, Qwen2.5, Qwen3, Granite 4, ERNIE 4.5", Example: `<tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>`},
			body:  hermes.newMachine, render: hermes.render, marks: hermes.markers(),
		},
		{
			Entry: Entry{Name: "granite", Models: "Granite 3", Example: `<|tool_call|>[{"name": "add", "arguments": {"a": 2}}]`},
			body:  granite.newMachine, render: granite.render, marks: granite.markers(),
		},
		{
			Entry: Entry{Name: "granite-20b-fc", Models: "Granite 20B function calling", Example: `<function_call> {"name": "add", "arguments": {"a": 2}}`},
			body:  granite20b.newMachine, render: granite20b.render, marks: granite20b.markers(),
		},
		{
			Entry: Entry{Name: "phi4_mini_json", Models: "Phi-4-mini", Example: `functools[{"name": "add", "arguments": {"a": 2}}]`},
			body:  phi4Mini.newMachine, render: phi4Mini.render, marks: phi4Mini.markers(),
		},
		{
			Entry: Entry{Name: "hunyuan_a13b", Aliases: []string{"jamba"}, Models: "Hunyuan A13B, Jamba", Example: `<tool_calls>[{"name": "add", "arguments": {"a": 2}}]</tool_calls>`},
			body:  toolCalls.newMachine, render: toolCalls.render, marks: toolCalls.markers(),
		},
		{
			Entry: Entry{Name: "internlm", Models: "InternLM 2.5", Example: `<|action_start|><|plugin|>{"name": "add", "parameters": {"a": 2}}<|action_end|>`},
			body:  internLM.newMachine, render: internLM.render, marks: internLM.markers(),
		},
		{
			Entry: Entry{Name: "longcat", Models: "LongCat-Flash", Example: `<longcat_tool_call>{"name": "add", "arguments": {"a": 2}}</longcat_tool_call>`},
			body:  longcat.newMachine, render: longcat.render, marks: longcat.markers(),
		},
		{
			Entry: Entry{Name: "glm45", Aliases: []string{"glm47"}, Models: "GLM-4.5, GLM-4.6, GLM-4.7", Example: "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"},
			body:  newGLM45, render: renderGLM45, marks: glmMarkers,
		},
		{
			Entry: Entry{Name: "minimax_m2", Models: "MiniMax M2", Example: "<minimax:tool_call>\n<invoke name=\"add\">\n<parameter name=\"a\">2</parameter>\n</invoke>\n</minimax:tool_call>"},
			body:  minimaxTags.newMachine, render: minimaxTags.render, marks: minimaxTags.outer(),
		},
		{
			Entry: Entry{Name: "deepseek_v3", Models: "DeepSeek-V3, DeepSeek-R1-0528", Example: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
			body:  deepseekV3.newMachine, render: deepseekV3.render, marks: append(deepseekV3.markers(), deepseekV31.sep),
		},
		{
			Entry: Entry{Name: "deepseek_v31", Models: "DeepSeek-V3.1", Example: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
			body:  deepseekV31.newMachine, render: deepseekV31.render, marks: deepseekV31.markers(),
		},
		{
			Entry: Entry{Name: "kimi_k2", Models: "Kimi K2", Example: `<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{"a": 2}<|tool_call_end|><|tool_calls_section_end|>`},
			body:  kimiK2.newMachine, render: kimiK2.render, marks: kimiK2.markers(),
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
			Entry: Entry{Name: "olmo3", Models: "OLMo 3", Example: "<function_calls>add(a=2, b=3)\ngreet(name=\"Ada\")</function_calls>"},
			body:  newOlmo3, render: renderOlmo3, marks: olmo3Markers,
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
			if r.spec.framed {
				out = append(out, responseOpen, responseClose)
			}
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
	if r, ok := findReasoning(reasoning); ok && r.spec.framed {
		text += renderResponse(m.Content)
	} else {
		text += m.Content
	}
	if t, ok := findTool(tools); ok && len(m.Calls) > 0 {
		text += t.render(&m)
	}
	return text, nil
}
