package openai

import (
	"bytes"
	"encoding/json"

	"vapp.dev/appliance/chat"
)

// responseTools reads tools and tool_choice. It converts them to the form of chats,
// which nests the function.
func responseTools(f *fields, r *ResponsesRequest) {
	r.echo.Parallel = f.flag("parallel_tool_calls", true)
	r.echo.Tools, r.echo.ToolChoice = []json.RawMessage{}, json.RawMessage(`"auto"`)
	list := f.list("tools")
	nested := make([]json.RawMessage, 0, len(list))
	for i, raw := range list {
		t, bad := responseTool("tools."+itoa(i), raw)
		if bad != nil {
			f.fail(bad)
			return
		}
		nested = append(nested, t)
		r.echo.Tools = append(r.echo.Tools, bytes.Clone(raw))
	}
	as := newFields("", map[string]json.RawMessage{"parallel_tool_calls": encode(r.echo.Parallel)})
	if choice, is := f.get("tool_choice"); is {
		r.echo.ToolChoice = bytes.Clone(choice)
		if choice[0] == '{' {
			choice, nested = responseChoice(f, nested)
		}
		as.raw["tool_choice"] = choice
		// Clients of this protocol send auto also without tools.
		if string(choice) == `"auto"` && len(nested) == 0 {
			delete(as.raw, "tool_choice")
		}
	}
	if list != nil {
		as.raw["tools"] = encode(nested)
	}
	if f.err == nil {
		tools(as, &r.Ask)
	}
	if as.err != nil {
		f.fail(as.err)
	}
}

// responseChoice reads a tool_choice that is an object: one function, or a list of
// allowed functions, which then replaces the tools.
func responseChoice(f *fields, nested []json.RawMessage) (json.RawMessage, []json.RawMessage) {
	o := newFields("tool_choice.", f.object("tool_choice"))
	switch kind := o.str("type"); {
	case o.err != nil:
		f.fail(o.err)
	case kind == "function":
		name := o.str("name")
		if o.err == nil && name == "" {
			o.fail(malformed("tool_choice.name", "Field required: `tool_choice.name`."))
		}
		if o.err != nil {
			f.fail(o.err)
		}
		return encode(map[string]any{"function": map[string]string{"name": name}}), nested
	case kind == "allowed_tools":
		return allowedTools(f, o, nested)
	default:
		f.fail(chat.Errorf(chat.Invalid, "tool_choice", "`tool_choice.type`: %q is a tool that OpenAI's own servers run; this server knows function and allowed_tools.", kind))
	}
	return nil, nil
}

func allowedTools(f, o *fields, nested []json.RawMessage) (json.RawMessage, []json.RawMessage) {
	mode, allowed := o.str("mode"), map[string]bool{}
	if o.err == nil && mode != "auto" && mode != "required" {
		o.fail(malformed("tool_choice.mode", "`tool_choice.mode` must be auto or required, got %q.", mode))
	}
	for i, raw := range o.list("tools") {
		at := "tool_choice.tools." + itoa(i)
		obj, ok := object(raw)
		if !ok {
			o.fail(malformed(at, "`%s` must be an object.", at))
			break
		}
		t := newFields(at+".", obj)
		if allowed[t.str("name")] = true; t.err != nil {
			o.fail(t.err)
		}
	}
	if o.err != nil {
		f.fail(o.err)
		return nil, nil
	}
	var kept []json.RawMessage
	for _, raw := range nested {
		var t nestedTool
		_ = json.Unmarshal(raw, &t) // no error: this package wrote it
		if allowed[t.Function.Name] {
			kept = append(kept, raw)
		}
		delete(allowed, t.Function.Name)
	}
	for name := range allowed {
		f.fail(chat.Errorf(chat.Invalid, "tool_choice", "The tool %q that `tool_choice` allows is none of the specified `tools`.", name))
	}
	return encode(mode), kept
}

// nestedTool is a tool in the form of chats.
type nestedTool struct {
	Type     string         `json:"type"`
	Function nestedFunction `json:"function"`
}

type nestedFunction struct {
	Name        string          `json:"name"`
	Description *string         `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      bool            `json:"strict,omitempty"`
}

// responseTool converts one tool to the form of chats.
func responseTool(at string, raw json.RawMessage) (json.RawMessage, *chat.Error) {
	obj, ok := object(raw)
	if !ok {
		return nil, malformed(at, "`%s` must be an object.", at)
	}
	t := newFields(at+".", obj)
	if kind := t.str("type"); t.err == nil && kind != "function" {
		t.fail(chat.Errorf(chat.Invalid, "tools", "`%s.type`: %q is a tool that OpenAI's own servers run; this server takes tools of type \"function\", which the client runs.", at, kind))
	}
	name, about := t.str("name"), t.strOpt("description")
	if t.err == nil && name == "" {
		t.fail(malformed(at+".name", "Field required: `%s.name`.", at))
	}
	parameters, _ := t.get("parameters")
	t.object("parameters")
	strict := t.flag("strict", false)
	if t.err != nil {
		return nil, t.err
	}
	return encode(nestedTool{"function", nestedFunction{name, about, parameters, strict}}), nil
}
