package openai

import (
	"encoding/json"
	"fmt"

	"vapp.dev/appliance/chat"
)

// tools reads tools and tool_choice; whether the server can serve the choice is
// for chat to say.
func tools(f *fields, a *chat.Ask) {
	a.OneCall = !f.flag("parallel_tool_calls", true)
	list := f.list("tools")
	names, bad := toolNames(list)
	if bad != nil {
		f.fail(bad)
		return
	}
	choice, named := toolChoice(f)
	if f.err != nil {
		return
	}
	if choice == "" {
		choice = "none"
		if len(list) > 0 {
			choice = "auto"
		}
	}
	refuse := func(format string, args ...any) {
		f.fail(chat.Errorf(chat.Invalid, "tool_choice", format, args...))
	}
	switch {
	case list == nil && choice != "none":
		refuse("When using `tool_choice`, `tools` must be set.")
	case len(list) == 0 && (choice == "required" || choice == "named"):
		f.fail(chat.Errorf(chat.Invalid, "tools", "`tools` must not be an empty array when `tool_choice` asks for a call."))
	case choice == "named" && !names[named]:
		refuse("The tool specified in `tool_choice` does not match any of the specified `tools`.")
	}
	a.Chat.Tools, a.ToolChoice, a.ToolName = list, choice, named
}

// toolChoice returns none, auto, required, named, or "" when absent.
func toolChoice(f *fields) (choice, name string) {
	v, ok := f.get("tool_choice")
	if !ok {
		return "", ""
	}
	if v[0] == '"' {
		switch s := f.str("tool_choice"); s {
		case "none", "auto", "required":
			return s, ""
		default:
			f.fail(chat.Errorf(chat.Invalid, "tool_choice", "Invalid value for `tool_choice`: %s! Only named tools, \"none\", \"auto\" or \"required\" are supported.", s))
			return "", ""
		}
	}
	obj := newFields("tool_choice.", f.object("tool_choice"))
	fn := newFields("tool_choice.function.", obj.object("function"))
	if name = fn.str("name"); name == "" {
		f.fail(malformed("tool_choice.function.name", "Field required: `tool_choice.function.name`."))
	}
	return "named", name
}

// toolNames checks tools: functions with unique names, parameters an object or
// absent.
func toolNames(list []json.RawMessage) (map[string]bool, *chat.Error) {
	names := map[string]bool{}
	for i, raw := range list {
		at := fmt.Sprintf("tools.%d", i)
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
			return nil, chat.Errorf(chat.Invalid, "tools", "Tool names must be unique, got %q twice.", name)
		}
		names[name] = true
	}
	return names, nil
}
