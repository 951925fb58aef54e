package openai

import (
	"encoding/json"
	"fmt"
	"slices"

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
	if slices.Contains(mediaParts, kind) {
		return chat.Part{Type: kind, Media: media(f, at, kind)}, nil
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

// mediaKinds maps the type of a part to the kind of its media. Parts of other types have data
// that no model takes.
var mediaKinds = map[string]string{"image_url": "image", "input_image": "image", "video_url": "video", "audio_url": "audio", "input_audio": "audio"}

// media reads a part of one of mediaParts. What is wrong with it is its Fault, because a model
// of text refuses the part, whatever is in it. The URL of image_url, video_url and input_image
// is a string or an object with url; detail has no effect, as in vLLM.
func media(f *fields, at, kind string) *chat.Media {
	m := &chat.Media{Kind: mediaKinds[kind], At: at, What: fmt.Sprintf("part of type %q", kind)}
	field := kind
	if kind == "input_image" {
		field = "image_url"
	}
	m.UUID = uuid(f)
	switch v, ok := f.get(field); {
	case m.Kind == "" || m.Kind == "audio":
		return m
	case !ok && f.has("file_id"):
		f.fail(chat.Errorf(chat.Invalid, "messages", "`%s.file_id` is not supported: this server keeps no files. Send image_url.", at))
	case !ok && m.UUID == "":
		f.fail(malformed(at+"."+field, "Field required: `%s.%s`.", at, field))
	case !ok:
	case v[0] == '"':
		m.URL = f.str(field)
	case v[0] == '{':
		u := newFields(f.at+field+".", f.object(field))
		if m.URL = u.str("url"); m.URL == "" && m.UUID == "" {
			u.fail(malformed(u.at+"url", "Field required: `%surl`.", u.at))
		}
		if u.err != nil {
			f.fail(u.err)
		}
	default:
		f.wrong(field, "a URL or an object with url")
	}
	m.Fault = f.err
	return m
}

// uuid returns the client's name of a part's media. Like vLLM it takes numbers as well.
func uuid(f *fields) string {
	v, ok := f.get("uuid")
	if ok && (v[0] == '-' || v[0] >= '0' && v[0] <= '9') {
		return string(v)
	}
	return f.str("uuid")
}

// shortForm returns the type of a part without the field type: {"text": …},
// {"image_url": …}, {"image_url": null, "uuid": …}.
func shortForm(f *fields) string {
	for _, media := range mediaParts {
		if _, null := f.raw[media]; f.has(media) || null && f.has("uuid") {
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
