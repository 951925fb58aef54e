package openai

import (
	"encoding/json"
	"fmt"

	"vapp.dev/appliance/api/rawjson"
	"vapp.dev/appliance/chat"
)

// message reads one element of messages.
func message(i int, raw json.RawMessage) (chat.Message, *chat.Error) {
	at := fmt.Sprintf("messages.%d", i)
	obj, ok := object(raw)
	if !ok {
		return chat.Message{}, malformed(at, "`%s` must be an object.", at)
	}
	f := newFields(at+".", obj)
	m := chat.Message{
		Role: f.str("role"), Name: f.str("name"), ToolCallID: f.str("tool_call_id"), Reasoning: f.strOpt("reasoning"),
	}
	if old := f.strOpt("reasoning_content"); m.Reasoning == nil {
		m.Reasoning = old
	}
	if m.Role == "" {
		f.fail(malformed(at+".role", "Field required: `%s.role`.", at))
	}
	content(f, &m)
	m.ToolCalls = toolCalls(f)
	list := f.list("tools")
	if _, bad := toolNames(at+".tools", list); bad != nil {
		f.fail(bad)
	}
	if m.Role == "developer" {
		m.Tools = cloneValues(list)
	}
	if f.err != nil {
		return m, f.err
	}
	return m, nil
}

// content reads a string, null, or an array of parts.
func content(f *fields, m *chat.Message) {
	v, ok := f.get("content")
	if !ok {
		return
	}
	m.HasContent = true
	switch v[0] {
	case '"':
		m.Text = f.str("content")
	case '[':
		list := f.list("content")
		m.Parts = make([]chat.Part, 0, len(list))
		for i, raw := range list {
			p, err := part(fmt.Sprintf("%scontent.%d", f.at, i), raw)
			if err != nil {
				f.fail(err)
				return
			}
			m.Parts = append(m.Parts, p)
		}
	default:
		f.wrong("content", "a string, null or an array of parts")
	}
}

// textParts maps the type of a part to the field that holds its text.
var textParts = map[string]string{
	"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal", "thinking": "thinking",
}

// mediaParts lists the types of parts that a text model does not accept. In the short
// form a part has this name as its only key.
var mediaParts = []string{"image_url", "input_audio", "audio_url", "video_url", "image_pil", "image_embeds", "audio_embeds", "file", "input_image"}

func part(at string, raw json.RawMessage) (chat.Part, *chat.Error) {
	if bare, ok := rawjson.String(raw); ok {
		return chat.Part{Type: "text", Text: bare}, nil
	}
	obj, ok := object(raw)
	if !ok {
		return chat.Part{}, malformed(at, "`%s` must be a string or an object with a type.", at)
	}
	f := newFields(at+".", obj)
	kind := f.str("type")
	if kind == "" {
		kind = shortForm(f)
	}
	for _, media := range mediaParts {
		if kind == media {
			return chat.Part{}, chat.Errorf(chat.Invalid, "messages", "%s: the served model is not a multimodal model and takes no part of type %q.", at, kind)
		}
	}
	field, ok := textParts[kind]
	if !ok {
		f.fail(malformed(at+".type", "Unknown part type: %q in `%s`.", kind, at))
	} else if !f.has(field) {
		f.fail(malformed(at+"."+field, "Field required: `%s.%s`.", at, field))
	}
	p := chat.Part{Type: kind, Text: f.str(field)}
	if f.err != nil {
		return p, f.err
	}
	return p, nil
}

// shortForm returns the type of a part without the field type: {"text": …},
// {"image_url": …}.
func shortForm(f *fields) string {
	for _, media := range mediaParts {
		if f.has(media) {
			return media
		}
	}
	for _, kind := range []string{"text", "refusal", "thinking"} {
		if f.has(kind) {
			return kind
		}
	}
	return ""
}

// toolCalls reads the calls of an assistant's turn. An empty array counts as absent.
func toolCalls(f *fields) []chat.ToolCall {
	var out []chat.ToolCall
	for i, raw := range f.list("tool_calls") {
		at := fmt.Sprintf("%stool_calls.%d.", f.at, i)
		obj, ok := object(raw)
		if !ok {
			f.fail(malformed(at[:len(at)-1], "`%s` must be an object.", at[:len(at)-1]))
			return nil
		}
		call := newFields(at, obj)
		fn := newFields(at+"function.", call.object("function"))
		if fn.raw == nil {
			call.wrong("function", "an object")
		}
		c := chat.ToolCall{ID: call.str("id"), Name: fn.str("name")}
		call.str("type") // always "function"
		if v, ok := fn.get("arguments"); ok && v[0] == '{' {
			c.Arguments = string(v)
		} else {
			c.Arguments = fn.str("arguments")
		}
		if c.Name == "" {
			fn.fail(malformed(at+"function.name", "Field required: `%sfunction.name`.", at))
		}
		for _, part := range []*fields{call, fn} {
			if part.err != nil {
				f.fail(part.err)
				return nil
			}
		}
		out = append(out, c)
	}
	return out
}
