package anthropic

import (
	"encoding/json"
	"fmt"

	"vapp.dev/appliance/chat"
)

// function is a tool in the form that chat templates expect.
type function struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      bool            `json:"strict,omitempty"`
	} `json:"function"`
}

// tools reads tools and tool_choice. Package chat checks whether the server supports
// the choice.
func tools(o *object, a *chat.RequestParams) {
	names := map[string]bool{}
	for i, raw := range o.list("tools") {
		t := newObject(fmt.Sprintf("tools.%d.", i), raw)
		f := function{Type: "function"}
		f.Function.Name = t.text("name")
		if kind := t.str("type"); t.err == nil && kind != "" && kind != "custom" {
			t.fail(chat.Errorf(chat.Invalid, "tools", "`%stype`: %q is a tool that Anthropic's own servers run; this server takes tools of type \"custom\", which the client runs.", t.at, kind))
		}
		f.Function.Description, f.Function.Strict = t.str("description"), t.flag("strict")
		schema := t.get("input_schema")
		if t.err == nil && (schema == nil || schema[0] != '{') {
			t.wrong("input_schema", "an object")
		}
		f.Function.Parameters = schema
		if t.err == nil && (names[f.Function.Name] || f.Function.Name == "") {
			t.wrong("name", "not empty and no other tool's")
		}
		if t.err != nil {
			o.fail(t.err)
			return
		}
		names[f.Function.Name] = true
		a.Chat.Tools = append(a.Chat.Tools, encode(f))
	}
	a.ToolChoice = "none"
	if len(names) > 0 {
		a.ToolChoice = "auto"
	}
	if o.get("tool_choice") != nil {
		toolChoice(o, a, names)
	}
}

func toolChoice(o *object, a *chat.RequestParams, names map[string]bool) {
	c := o.sub("tool_choice")
	a.OneCall = c.flag("disable_parallel_tool_use")
	switch kind := c.text("type"); {
	case c.err != nil:
	case kind == "none":
		a.ToolChoice = "none"
	case kind != "auto" && kind != "any" && kind != "tool":
		c.wrong("type", "auto, any, tool or none")
	case len(names) == 0 && kind == "auto":
	case len(names) == 0:
		c.fail(chat.Errorf(chat.Invalid, "tool_choice", "When using `tool_choice`, `tools` must be set."))
	case kind == "any":
		a.ToolChoice = "required"
	case kind == "tool":
		a.ToolChoice, a.ToolName = "named", c.text("name")
		if c.err == nil && !names[a.ToolName] {
			c.fail(chat.Errorf(chat.Invalid, "tool_choice", "The tool specified in `tool_choice` does not match any of the specified `tools`."))
		}
	}
	if c.err != nil {
		o.fail(c.err)
	}
}
