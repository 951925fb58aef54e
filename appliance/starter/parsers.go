package starter

import "strings"

// Parsers are names of parsers for a model's replies; "": none is known.
type Parsers struct{ Reasoning, ToolCall string }

// ParsersOf returns the parsers whose format the chat template of the model writes, or, where the
// template is unknown, those of the architecture.
func ParsersOf(architecture, template string) Parsers {
	has := func(marks ...string) bool {
		for _, m := range marks {
			if !strings.Contains(template, m) {
				return false
			}
		}
		return true
	}
	if architecture == "GptOssForCausalLM" {
		return Parsers{"openai_gptoss", "openai"}
	}
	if template == "" {
		return byArchitecture[architecture]
	}
	var p Parsers
	switch {
	case has("<|channel>", "enable_thinking"):
		p.Reasoning = "gemma4"
	case has("[THINK]"):
		p.Reasoning = "mistral"
	case has("<seed:think>"):
		p.Reasoning = "seed_oss"
	case has("[gMASK]<sop>", "<think>"):
		p.Reasoning = "glm45"
	case has("<response>", "</think>"):
		p.Reasoning = "ernie45"
	case has("<functions>", "<function_calls>", "<think>"):
		p.Reasoning = "olmo3"
	case has("<minimax:tool_call>", "<think>"):
		p.Reasoning = "minimax_m2"
	case has("<think>", "enable_thinking"):
		p.Reasoning = "qwen3"
	case has("</think>", "<｜Assistant｜>", "thinking is defined"):
		p.Reasoning = "deepseek_v3"
	case has("</think>", "<｜Assistant｜>"):
		p.Reasoning = "deepseek_r1"
	}
	switch {
	case has("<|tool_call>call:"):
		p.ToolCall = "gemma4"
	case has("<seed:tool_call>", "<function="):
		p.ToolCall = "seed_oss"
	case has("<tool_call>", "<arg_key>", "<arg_value>"):
		p.ToolCall = "glm45"
	case has("<minimax:tool_call>", "<invoke name="):
		p.ToolCall = "minimax_m2"
	case has("<｜tool▁call▁begin｜>", "```json"):
		p.ToolCall = "deepseek_v3"
	case has("<｜tool▁call▁begin｜>"):
		p.ToolCall = "deepseek_v31"
	case has("<|tool_calls_section_begin|>"):
		p.ToolCall = "kimi_k2"
	case has("<tool_call>", "<function="):
		p.ToolCall = "qwen3_coder"
	case has("<response>", "<tool_call>"):
		p.ToolCall = "ernie45"
	case has("<functions>", "<function_calls>"):
		p.ToolCall = "olmo3"
	case has("<|header_start|>", "[func_name1("):
		p.ToolCall = "llama4_pythonic"
	case has("[func_name1("):
		p.ToolCall = "pythonic"
	case has("<|header_start|>", "\"parameters\"", "ipython"):
		p.ToolCall = "llama4_json"
	case has("<tool_call>", "\"arguments\""), has("<tool_call>", "\\\"arguments\\\""):
		p.ToolCall = "hermes"
	case has("<|start_of_role|>", "<|tool_call|>"):
		p.ToolCall = "granite"
	case has("<|action_start|>", "<|plugin|>"):
		p.ToolCall = "internlm"
	case has("[TOOL_CALLS]"):
		p.ToolCall = "mistral"
	case has("\"parameters\"", "ipython"):
		p.ToolCall = "llama3_json"
	}
	return p
}

// byArchitecture has the architectures whose published templates all write one format.
var byArchitecture = map[string]Parsers{
	"Qwen3ForCausalLM":                      {"qwen3", "hermes"},
	"Qwen3_5ForConditionalGeneration":       {"qwen3", "qwen3_coder"},
	"Gemma4ForConditionalGeneration":        {"gemma4", "gemma4"},
	"Gemma4ForCausalLM":                     {"gemma4", "gemma4"},
	"Gemma4UnifiedForConditionalGeneration": {"gemma4", "gemma4"},
}

// ParserFields returns the field that names the parsers, if any is known. With a parser of tool calls
// the model may decide whether to call a tool.
func ParserFields(p Parsers) []Field {
	var values, whys []string
	if p.Reasoning != "" {
		values, whys = append(values, "reasoning: "+quote(p.Reasoning)), append(whys, "reasoning")
	}
	if p.ToolCall != "" {
		values, whys = append(values, "toolCall: "+quote(p.ToolCall), "autoToolChoice: true"), append(whys, "tool calls")
	}
	if len(values) == 0 {
		return nil
	}
	return []Field{{"parsers", "{" + strings.Join(values, ", ") + "}", "the format of the model's " + strings.Join(whys, " and ")}}
}

// ForDevices returns the fields of a profile for any device.
func ForDevices() []Field {
	return []Field{
		{"maxModelLen", `"auto"`, "tokens of a prompt and its reply: the longest sequence that fits"},
		{"memory.utilization", "0.9", "the share of a device's memory that the server takes, as in vLLM"},
		{"scheduler.maxNumSeqs", "256", "sequences that run at the same time, as in vLLM"},
	}
}
