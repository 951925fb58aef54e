package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"vapp.dev/appliance/chat"
)

func itoa(i int) string { return strconv.Itoa(i) }

// responseInput reads input, a string or an array of items.
func responseInput(f *fields, r *ResponsesRequest) {
	v, ok := f.get("input")
	switch {
	case !ok:
		f.fail(malformed("input", "Field required: `input`."))
	case v[0] == '"':
		head, tail, _ := bytes.Cut(encode(map[string]any{
			"type": "message", "role": "user", "content": []outputPart{{Type: "input_text"}},
		}), []byte(`"text":""`))
		r.input = []json.RawMessage{slices.Concat(head, []byte(`"text":`), v, tail)}
	case v[0] == '[':
		if r.input = cloneValues(f.list("input")); f.err == nil && len(r.input) == 0 && r.Previous == "" {
			f.fail(malformed("input", "`input` must be a string or an array of at least one item."))
		}
	default:
		f.wrong("input", "a string or an array of items")
	}
}

// Resolve sets the messages of the request: the instructions, the items of previous
// responses, then the request's own items. find returns a stored item by its id; nil:
// no items are stored. Its errors are *chat.Error.
func (r *ResponsesRequest) Resolve(before []json.RawMessage, find func(id string) (json.RawMessage, error)) error {
	c := r.Ask.Chat
	c.Messages = nil
	if r.instructions != "" {
		c.Messages = append(c.Messages, chat.Message{Role: "system", Text: r.instructions, HasContent: true})
	}
	for i, raw := range before {
		if bad := responseItem(c, "previous."+itoa(i), raw); bad != nil {
			return bad
		}
	}
	for i, raw := range r.input {
		at := "input." + itoa(i)
		id, bad := referenceID(at, raw)
		if bad != nil {
			return bad
		}
		if id != "" {
			if find == nil {
				return chat.Errorf(chat.Invalid, "input", "`%s`: this server stores no items to refer to. Give the item itself.", at)
			}
			found, err := find(id)
			if err != nil {
				return err
			}
			raw, r.input[i] = found, found
		}
		if bad := responseItem(c, at, raw); bad != nil {
			return bad
		}
	}
	if len(c.Messages) == 0 {
		return malformed("input", "`input` holds nothing that a model could answer.")
	}
	refuseVideos(c)
	return nil
}

// refuseVideos makes videos, which the API has not, a Fault of their parts.
func refuseVideos(c *chat.Conversation) {
	for _, m := range c.Messages {
		for _, p := range m.Parts {
			if p.Media != nil && p.Media.Kind == "video" {
				p.Media.Fault = chat.Errorf(chat.Invalid, "messages", "`%s`: responses have no videos. Send it to /v1/chat/completions.", p.Media.At)
			}
		}
	}
}

// referenceID returns the id in an item_reference, "" for other items.
func referenceID(at string, raw json.RawMessage) (string, *chat.Error) {
	obj, ok := object(raw)
	if !ok {
		return "", malformed(at, "`%s` must be an object.", at)
	}
	f := newFields(at+".", obj)
	switch kind := f.str("type"); {
	case f.err != nil:
		return "", f.err
	case kind != "item_reference" && (kind != "" || f.has("role") || !f.has("id")):
		return "", nil
	}
	id := f.str("id")
	if f.err == nil && id == "" {
		f.fail(malformed(at+".id", "Field required: `%s.id`.", at))
	}
	if f.err != nil {
		return "", f.err
	}
	return id, nil
}

// assistant returns the assistant's current turn, or a new one if ended reports that it
// is complete. Consecutive items of the assistant (reasoning, message, calls) are one
// turn.
func assistant(c *chat.Conversation, ended func(*chat.Message) bool) *chat.Message {
	if n := len(c.Messages); n > 0 && c.Messages[n-1].Role == "assistant" && !ended(&c.Messages[n-1]) {
		return &c.Messages[n-1]
	}
	c.Messages = append(c.Messages, chat.Message{Role: "assistant"})
	return &c.Messages[len(c.Messages)-1]
}

func hasOutput(m *chat.Message) bool { return m.HasContent || m.ToolCalls != nil }

func responseItem(c *chat.Conversation, at string, raw json.RawMessage) *chat.Error {
	obj, ok := object(raw)
	if !ok {
		return malformed(at, "`%s` must be an object.", at)
	}
	f := newFields(at+".", obj)
	switch kind := f.str("type"); {
	case f.err != nil:
	case kind == "message" || kind == "":
		responseMessage(c, f)
	case kind == "reasoning":
		if thought := responseThought(f); thought != "" {
			m := assistant(c, hasOutput)
			if m.Reasoning != nil {
				thought = *m.Reasoning + thought
			}
			m.Reasoning = &thought
		}
	case kind == "function_call":
		call := chat.ToolCall{ID: f.str("call_id"), Name: f.str("name"), Arguments: f.str("arguments")}
		if f.err == nil && (call.Name == "" || call.ID == "") {
			f.fail(malformed(at, "Fields required: `%s.call_id` and `%s.name`.", at, at))
		}
		m := assistant(c, func(*chat.Message) bool { return false })
		m.ToolCalls = append(m.ToolCalls, call)
	case kind == "function_call_output":
		text, pictures := responseOutput(f)
		m := chat.Message{Role: "tool", ToolCallID: f.str("call_id"), HasContent: true, Text: text}
		if f.err == nil && m.ToolCallID == "" {
			f.fail(malformed(at+".call_id", "Field required: `%s.call_id`.", at))
		}
		m.Name = calledName(c, m.ToolCallID)
		c.Messages = append(c.Messages, m)
		if pictures != nil {
			c.Messages = append(c.Messages, chat.Message{Role: "user", Parts: pictures, HasContent: true})
		}
	default:
		f.fail(malformed(at+".type", "`%s.type`: %q is not an item that this server takes: message, reasoning, function_call, function_call_output, item_reference.", at, kind))
	}
	return f.err
}

// calledName returns the function name of a call. The templates of some models need it
// in the tool's message.
func calledName(c *chat.Conversation, id string) string {
	for i := len(c.Messages) - 1; i >= 0; i-- {
		for _, call := range c.Messages[i].ToolCalls {
			if call.ID == id {
				return call.Name
			}
		}
	}
	return ""
}

// responseMessage reads a message in the form of chats.
func responseMessage(c *chat.Conversation, f *fields) {
	var m chat.Message
	m.Role = f.str("role")
	if f.err == nil && m.Role == "" {
		f.fail(malformed(f.at+"role", "Field required: `%srole`.", f.at))
	}
	content(f, &m)
	if f.err != nil {
		return
	}
	if len(m.Parts) == 1 && m.Parts[0].Media == nil {
		m.Text, m.Parts = m.Parts[0].Text, nil
	}
	if m.Role != "assistant" {
		c.Messages = append(c.Messages, m)
		return
	}
	turn := assistant(c, hasOutput)
	turn.Text, turn.Parts, turn.HasContent = m.Text, m.Parts, m.HasContent
}

// sealPrefix is the prefix of encrypted_content in this server's reasoning items. The
// content is not secret: the item also has the text. It exists for clients that store
// only this field.
const sealPrefix = "vapp1."

func seal(text string) *string {
	s := sealPrefix + base64.RawURLEncoding.EncodeToString([]byte(text))
	return &s
}

// responseThought returns the text of a reasoning item: its content, else the text in
// encrypted_content, else its summary.
func responseThought(f *fields) string {
	if text, is := thoughtParts(f, "content"); is || f.err != nil {
		return text
	}
	if code, is := strings.CutPrefix(f.str("encrypted_content"), sealPrefix); is {
		b, err := base64.RawURLEncoding.DecodeString(code)
		if err != nil {
			f.fail(malformed(f.at+"encrypted_content", "`%sencrypted_content` was cut or changed since this server wrote it.", f.at))
		}
		return strings.ToValidUTF8(string(b), "\ufffd")
	}
	if text, is := thoughtParts(f, "summary"); is || f.err != nil {
		return text
	}
	if f.has("encrypted_content") {
		f.fail(chat.Errorf(chat.Invalid, "input", "`%sencrypted_content` is of another server, and there is neither content nor summary: leave the item out.", f.at))
	}
	return ""
}

// thoughtParts returns the joined texts of a list of parts, and whether it has parts.
func thoughtParts(f *fields, field string) (text string, is bool) {
	list := f.list(field)
	var b strings.Builder
	for i, raw := range list {
		at := f.at + field + "." + itoa(i)
		obj, ok := object(raw)
		if !ok {
			f.fail(malformed(at, "`%s` must be an object.", at))
			break
		}
		p := newFields(at+".", obj)
		if b.WriteString(p.str("text")); p.err != nil {
			f.fail(p.err)
		}
	}
	return b.String(), len(list) > 0
}

// responseOutput returns the output of a tool: a string, or the texts of its parts joined by
// line breaks, and its media, which follow as a message of the user, since templates take
// only text from tools.
func responseOutput(f *fields) (string, []chat.Part) {
	v, ok := f.get("output")
	if !ok {
		f.fail(malformed(f.at+"output", "Field required: `%soutput`.", f.at))
		return "", nil
	}
	if v[0] == '"' {
		return f.str("output"), nil
	}
	var texts []string
	var pictures []chat.Part
	for i, raw := range f.list("output") {
		p, bad := part(f.at+"output."+itoa(i), raw)
		if bad != nil {
			f.fail(bad)
			return "", nil
		}
		if p.Media != nil {
			pictures = append(pictures, p)
		} else {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n"), pictures
}
