package openai

import (
	"encoding/json"
	"strconv"
	"strings"

	"vapp.dev/appliance/chat"
)

func itoa(i int) string { return strconv.Itoa(i) }

// responseInput reads a text, or items. Items of an assistant that follow one
// another (reasoning, message, calls) are one turn.
func responseInput(f *fields, c *chat.Conversation) {
	v, ok := f.get("input")
	switch {
	case !ok:
		f.fail(malformed("input", "Field required: `input`."))
	case v[0] == '"':
		c.Messages = append(c.Messages, chat.Message{Role: "user", Text: f.str("input"), HasContent: true})
	case v[0] == '[':
		list := f.list("input")
		for i, raw := range list {
			if bad := responseItem(c, "input."+itoa(i), raw); bad != nil {
				f.fail(bad)
				return
			}
		}
		if f.err == nil && len(list) == 0 {
			f.fail(malformed("input", "`input` must be a string or an array of at least one item."))
		}
	default:
		f.wrong("input", "a string or an array of items")
	}
}

// assistant is the turn that goes on, or a new one where it has ended already.
func assistant(c *chat.Conversation, ended func(*chat.Message) bool) *chat.Message {
	if n := len(c.Messages); n > 0 && c.Messages[n-1].Role == "assistant" && !ended(&c.Messages[n-1]) {
		return &c.Messages[n-1]
	}
	c.Messages = append(c.Messages, chat.Message{Role: "assistant"})
	return &c.Messages[len(c.Messages)-1]
}

func spoken(m *chat.Message) bool { return m.HasContent || m.ToolCalls != nil }

func responseItem(c *chat.Conversation, at string, raw json.RawMessage) *chat.Error {
	obj, ok := object(raw)
	if !ok {
		return malformed(at, "`%s` must be an object.", at)
	}
	f := newFields(at+".", obj)
	switch kind := f.str("type"); {
	case f.err != nil:
	case kind == "message" || kind == "":
		return responseMessage(c, at, f)
	case kind == "reasoning":
		thought := responseThought(f)
		m := assistant(c, spoken)
		if m.Reasoning != nil {
			thought = *m.Reasoning + thought
		}
		m.Reasoning = &thought
	case kind == "function_call":
		call := chat.ToolCall{ID: f.str("call_id"), Name: f.str("name"), Arguments: f.str("arguments")}
		if f.err == nil && (call.Name == "" || call.ID == "") {
			f.fail(malformed(at, "Fields required: `%s.call_id` and `%s.name`.", at, at))
		}
		m := assistant(c, func(*chat.Message) bool { return false })
		m.ToolCalls = append(m.ToolCalls, call)
	case kind == "function_call_output":
		m := chat.Message{Role: "tool", ToolCallID: f.str("call_id"), HasContent: true}
		m.Text = responseOutput(f)
		c.Messages = append(c.Messages, m)
	case kind == "item_reference":
		f.fail(chat.Errorf(chat.Invalid, "input", "`%s`: this server stores no items to refer to. Give the item itself.", at))
	default:
		f.fail(malformed(at+".type", "`%s.type`: %q is not an item that this server takes: message, reasoning, function_call, function_call_output.", at, kind))
	}
	return f.err
}

// responseMessage reads a turn as chats have it.
func responseMessage(c *chat.Conversation, at string, f *fields) *chat.Error {
	var m chat.Message
	m.Role = f.str("role")
	if f.err == nil && m.Role == "" {
		f.fail(malformed(at+".role", "Field required: `%s.role`.", at))
	}
	content(f, &m)
	if f.err != nil {
		return f.err
	}
	if len(m.Parts) == 1 {
		m.Text, m.Parts = m.Parts[0].Text, nil
	}
	if m.Role != "assistant" {
		c.Messages = append(c.Messages, m)
		return nil
	}
	turn := assistant(c, spoken)
	turn.Text, turn.Parts, turn.HasContent = m.Text, m.Parts, m.HasContent
	return nil
}

// responseThought is the text of a reasoning item, else of its summary.
func responseThought(f *fields) string {
	for _, field := range []string{"content", "summary"} {
		var texts []string
		for i, raw := range f.list(field) {
			at := f.at + field + "." + itoa(i)
			obj, ok := object(raw)
			if !ok {
				f.fail(malformed(at, "`%s` must be an object.", at))
				return ""
			}
			p := newFields(at+".", obj)
			texts = append(texts, p.str("text"))
			if p.err != nil {
				f.fail(p.err)
			}
		}
		if texts != nil {
			return strings.Join(texts, "")
		}
	}
	return ""
}

// responseOutput is what a tool has answered: a text, or parts joined by line
// breaks.
func responseOutput(f *fields) string {
	v, ok := f.get("output")
	if !ok {
		f.fail(malformed(f.at+"output", "Field required: `%soutput`.", f.at))
		return ""
	}
	if v[0] == '"' {
		return f.str("output")
	}
	var texts []string
	for i, raw := range f.list("output") {
		p, bad := part(f.at+"output."+itoa(i), raw)
		if bad != nil {
			f.fail(bad)
			return ""
		}
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "\n")
}
