package structured

import (
	"encoding/json"
	"fmt"
	"slices"
)

// callFormats maps a tool dialect, or an alias of one, to the format of its replies: free
// text that contains calls, whose arguments follow the functions' schemas. gemma4 and
// pythonic are missing because their argument values are not JSON; other dialects that are
// missing have no such format.
var callFormats = map[string]func([]Function, map[string]int32) *tagFormat{
	"hermes": hermesCalls, "qwen3_json": hermesCalls, "granite4": hermesCalls, "ernie45": hermesCalls, "qwen3_coder": coderCalls, "qwen3_xml": coderCalls, "step3p5": coderCalls,
	"llama3_json": llama3Calls, "llama4_json": llama3Calls, "mistral": mistralCalls,
}

// DialectCalls returns the Lark grammar of replies whose calls, in the form of the dialect
// tools, follow the functions' schemas; "" if the dialect has no such grammar. tokens maps
// the markers that the vocabulary has as one special token to their ids.
func DialectCalls(tools string, list []Function, tokens map[string]int32) (string, error) {
	format := callFormats[tools]
	if format == nil {
		return "", nil
	}
	return tagGrammar(format(list, tokens), tokens)
}

func constText(s string) *tagFormat { return &tagFormat{Type: "const_string", Value: s} }

func anyText() *tagFormat { return &tagFormat{Type: "any_text"} }

// callTag returns the format of a call of f between begin and end.
func callTag(begin string, f Function, end string) *tagFormat {
	return tagged(begin, &tagFormat{Type: "json_schema", Schema: f.arguments()}, end)
}

func tagged(begin string, content *tagFormat, end string) *tagFormat {
	e, _ := json.Marshal(end) // a string
	return &tagFormat{Type: "tag", Begin: begin, Content: content, End: e}
}

func quoted(s string) string {
	b, _ := json.Marshal(s) // a string
	return string(b)
}

func hermesCalls(list []Function, _ map[string]int32) *tagFormat {
	out := &tagFormat{Type: "triggered_tags", Triggers: []string{"<tool_call>"}}
	for _, f := range list {
		out.Tags = append(out.Tags, callTag(fmt.Sprintf("<tool_call>\n{\"name\": %s, \"arguments\": ", quoted(f.Name)), f, "}\n</tool_call>"))
	}
	return out
}

func coderCalls(list []Function, _ map[string]int32) *tagFormat {
	out := &tagFormat{Type: "triggered_tags", Triggers: []string{"<tool_call>"}}
	for _, f := range list {
		content := &tagFormat{Type: "qwen_xml_parameter", Schema: f.arguments()}
		out.Tags = append(out.Tags, tagged("<tool_call>\n<function="+f.Name+">\n", content, "</function>\n</tool_call>"))
	}
	return out
}

// llama3Calls returns a format of replies that either consist of calls from the first
// character on or contain no "{".
func llama3Calls(list []Function, tokens map[string]int32) *tagFormat {
	calls := &tagFormat{Type: "tags_with_separator", Separator: "; ", AtLeast: true}
	for _, f := range list {
		calls.Tags = append(calls.Tags, callTag(fmt.Sprintf(`{"name": %s, "parameters": `, quoted(f.Name)), f, "}"))
	}
	prose := &tagFormat{Type: "any_text", Excludes: []string{"{"}}
	out := &tagFormat{Type: "or", Elements: []*tagFormat{calls, prose}}
	if _, is := tokens["<|python_tag|>"]; is {
		marked := &tagFormat{Type: "sequence", Elements: []*tagFormat{constText("<|python_tag|>"), calls}}
		out.Elements = append(out.Elements, marked)
	}
	return out
}

func mistralCalls(list []Function, tokens map[string]int32) *tagFormat {
	const marker = "[TOOL_CALLS]"
	out := &tagFormat{Type: "triggered_tags", Triggers: []string{marker}}
	if _, newer := tokens["[ARGS]"]; newer {
		for _, f := range list {
			out.Tags = append(out.Tags, callTag(marker+f.Name+"[ARGS]", f, ""))
		}
		return &tagFormat{Type: "sequence", Elements: []*tagFormat{anyTextBefore(marker), repeated(out.Tags)}}
	}
	calls := &tagFormat{Type: "tags_with_separator", Separator: ", ", AtLeast: true}
	for _, f := range list {
		calls.Tags = append(calls.Tags, callTag(fmt.Sprintf(`{"name": %s, "arguments": `, quoted(f.Name)), f, "}"))
	}
	out.Tags = []*tagFormat{tagged(marker+"[", calls, "]")}
	return out
}

// anyTextBefore returns the format of text without the marker.
func anyTextBefore(marker string) *tagFormat {
	return &tagFormat{Type: "any_text", Excludes: []string{marker}}
}

// repeated returns the format of zero or more tags in a row.
func repeated(tags []*tagFormat) *tagFormat {
	return &tagFormat{Type: "tags_with_separator", Tags: tags}
}

// parameters writes the arguments of a function in qwen3_coder's form: one after the other
// in the order of the schema, strings unquoted and other values as JSON.
func (w *tagWriter) parameters(raw []byte) string {
	var s struct {
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
		Defs       json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		w.fail("the parameters are not the JSON schema of an object: %s", oneLine(err))
		return `""`
	}
	if len(s.Properties) == 0 {
		return w.rule("r", "("+w.parameter(`/[^\x{3e}\n]{1,64}/`, nil)+")*")
	}
	list, err := members(s.Properties)
	if err != nil {
		w.fail("the properties are not a JSON object: %s", oneLine(err))
	}
	out := `""`
	for _, m := range list {
		one := "(" + w.parameter(w.literal(m.key), withDefs(m.value, s.Defs)) + ")"
		if !slices.Contains(s.Required, m.key) {
			one += "?"
		}
		out += " " + one
	}
	return "(" + out + ")"
}

// parameter writes one argument; without a schema it is free text.
func (w *tagWriter) parameter(key string, schema json.RawMessage) string {
	begin := w.literal("<parameter=") + " " + key + " " + w.literal(">\n")
	var s struct {
		Type  any             `json:"type"`
		Enum  json.RawMessage `json:"enum"`
		Const json.RawMessage `json:"const"`
	}
	const end = "\n</parameter>\n"
	if schema != nil && json.Unmarshal(schema, &s) == nil && (s.Type != "string" || len(s.Const) > 0) {
		return begin + " " + w.schema(schema) + " " + w.literal(end)
	}
	var words []string
	if len(s.Enum) > 0 && json.Unmarshal(s.Enum, &words) == nil && len(words) > 0 {
		return begin + " (" + w.texts(words) + ") " + w.literal(end)
	}
	return begin + " " + w.upTo(nil, []string{end}, nil)
}

// withDefs returns a part of a schema with the $defs of the whole, which the part may
// reference.
func withDefs(part, defs json.RawMessage) json.RawMessage {
	if len(defs) == 0 || len(part) < 2 || part[0] != '{' {
		return part
	}
	list, err := members(part)
	if err != nil || len(list) == 0 {
		return part
	}
	return json.RawMessage(`{"$defs":` + string(defs) + "," + string(part[1:]))
}
