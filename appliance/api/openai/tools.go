package openai

import (
	"encoding/json"
	"fmt"

	"vapp.dev/appliance/chat"
)

// tools reads tools and tool_choice. Package chat checks whether the server supports
// the choice.
func tools(f *fields, a *chat.RequestParams) {
	a.OneCall = !f.flag("parallel_tool_calls", true)
	list := f.list("tools")
	names, bad := toolNames("tools", list)
	if bad != nil {
		f.fail(bad)
		return
	}
	choice, named := toolChoice(f, list != nil)
	if f.err != nil {
		return
	}
	if choice == "" {
		choice = "none"
		switch {
		case len(list) > 0:
			choice = "auto"
		case a.Chat.OwnTools() != nil:
			choice = "" // chat chooses: auto if the server can parse calls
		}
	}
	switch {
	case len(list) == 0 && (choice == "required" || choice == "named"):
		f.fail(chat.Errorf(chat.Invalid, "tools", "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely."))
	case choice == "named" && !names[named]:
		f.fail(chat.Errorf(chat.Invalid, "tool_choice", "The tool specified in `tool_choice` does not match any of the specified `tools`"))
	}
	a.Chat.Tools, a.ToolChoice, a.ToolName = cloneValues(list), choice, named
}

// toolChoice returns none, auto, required, named, or "" when absent. tools is true if
// the request has tools; without tools only none is valid.
func toolChoice(f *fields, tools bool) (choice, name string) {
	v, ok := f.get("tool_choice")
	switch {
	case !ok:
		return "", ""
	case string(v) == `"none"`:
		return "none", ""
	case !tools:
		f.fail(chat.Errorf(chat.Invalid, "tool_choice", "When using `tool_choice`, `tools` must be set."))
		return "", ""
	case v[0] == '{':
		return "named", namedTool(f)
	}
	switch s := pythonText(v); s {
	case "auto", "required":
		return s, ""
	default:
		f.fail(chat.Errorf(chat.Invalid, "tool_choice", "Invalid value for `tool_choice`: %s! Only named tools, \"none\", \"auto\" or \"required\" are supported.", s))
		return "", ""
	}
}

// namedTool returns the function that tool_choice names.
func namedTool(f *fields) string {
	const usage = `Correct usage: ` + "`" + `{"type": "function", "function": {"name": "my_function"}}` + "`"
	choice := newFields("tool_choice.", f.object("tool_choice"))
	v, _ := choice.get("function")
	obj, ok := object(v)
	if !ok {
		f.fail(malformed("tool_choice.function", "Invalid value for `function`: `%s` in `tool_choice`! %s", pythonText(v), usage))
		return ""
	}
	v, ok = obj["name"]
	if !ok {
		f.fail(malformed("tool_choice.function.name", "Expected field `name` in `function` in `tool_choice`! %s", usage))
		return ""
	}
	var name string
	if json.Unmarshal(v, &name) != nil || name == "" {
		f.fail(malformed("tool_choice.function.name", "Invalid `name` in `function`: `%s` in `tool_choice`! %s", pythonText(v), usage))
	}
	return name
}

// pythonText returns a value in the form of vLLM's messages: a string without quotes,
// None for an absent value or null.
func pythonText(v json.RawMessage) string {
	var s string
	switch {
	case len(v) == 0 || string(v) == "null":
		return "None"
	case v[0] == '"' && json.Unmarshal(v, &s) == nil:
		return s
	}
	return string(v)
}

// toolNames checks tools and returns their names: functions with unique names, whose
// parameters are an object or absent.
func toolNames(field string, list []json.RawMessage) (map[string]bool, *chat.Error) {
	names := map[string]bool{}
	for i, raw := range list {
		at := fmt.Sprintf("%s.%d", field, i)
		obj, ok := object(raw)
		if !ok {
			return nil, malformed(at, "`%s` must be an object.", at)
		}
		tool := newFields(at+".", obj)
		if kind := tool.str("type"); tool.err == nil && kind != "function" && kind != "" {
			return nil, malformed(at+".type", "`%s.type` must be \"function\", got %q.", at, kind)
		}
		fn := newFields(at+".function.", tool.object("function"))
		name := fn.str("name")
		fn.object("parameters")
		for _, part := range []*fields{tool, fn} {
			if part.err != nil {
				return nil, part.err
			}
		}
		if name == "" {
			return nil, malformed(at+".function.name", "Field required: `%s.function.name`.", at)
		}
		if names[name] {
			return nil, chat.Errorf(chat.Invalid, field, "Tool names must be unique, got %q twice.", name)
		}
		names[name] = true
	}
	return names, nil
}
