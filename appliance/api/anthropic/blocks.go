package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"vapp.dev/appliance/chat"
)

// billing is the prefix of a system block that Anthropic's own servers use for
// billing. It is dropped.
const billing = "x-anthropic-billing-header"

// system reads the system prompt. It joins blocks without a separator.
func system(o *object, c *chat.Conversation) {
	v := o.get("system")
	if v == nil {
		return
	}
	var text strings.Builder
	if v[0] == '"' {
		text.WriteString(o.str("system"))
	} else {
		for i, raw := range o.list("system") {
			b := newObject(fmt.Sprintf("system.%d.", i), raw)
			if kind := b.str("type"); b.err == nil && kind != "text" {
				b.wrong("type", "text")
			}
			if part := b.text("text"); !strings.HasPrefix(part, billing) {
				text.WriteString(part)
			}
			if b.err != nil {
				o.fail(b.err)
				return
			}
		}
	}
	if text.Len() > 0 {
		c.Messages = append(c.Messages, chat.Message{Role: "system", Text: text.String(), HasContent: true})
	}
}

// text reads a required string.
func (o *object) text(name string) string {
	if o.err == nil && o.get(name) == nil {
		o.missing(name)
	}
	return o.str(name)
}

// turnBuilder converts one turn to messages. In a user's turn the tool results come
// before the rest.
type turnBuilder struct {
	message chat.Message
	thought strings.Builder
	results []chat.Message
}

// turn reads one element of messages.
func turn(o *object, i int, raw json.RawMessage, c *chat.Conversation) {
	if o.err != nil {
		return
	}
	m := newObject(fmt.Sprintf("messages.%d.", i), raw)
	s := turnBuilder{message: chat.Message{Role: m.str("role")}}
	if m.err == nil && s.message.Role != "user" && s.message.Role != "assistant" {
		m.wrong("role", "user or assistant")
	}
	switch v := m.get("content"); {
	case v == nil:
		m.missing("content")
	case v[0] == '"':
		s.message.Text, s.message.HasContent = m.str("content"), true
	case v[0] == '[':
		for k, raw := range m.list("content") {
			b := newObject(fmt.Sprintf("%scontent.%d.", m.at, k), raw)
			if s.block(b); b.err != nil {
				m.fail(b.err)
				break
			}
		}
		s.simplify()
	default:
		m.wrong("content", "a string or an array of blocks")
	}
	if m.err != nil {
		o.fail(m.err)
		return
	}
	c.Messages = append(c.Messages, s.results...)
	if s.message.HasContent || s.message.ToolCalls != nil || s.message.Reasoning != nil || s.results == nil {
		c.Messages = append(c.Messages, s.message)
	}
}

// simplify joins the thinking blocks, and turns a single part into a plain string.
func (s *turnBuilder) simplify() {
	if s.message.Reasoning != nil {
		*s.message.Reasoning = s.thought.String()
	}
	if len(s.message.Parts) == 1 && s.message.Parts[0].Media == nil {
		s.message.Text, s.message.Parts = s.message.Parts[0].Text, nil
	}
}

// block adds one content block.
func (s *turnBuilder) block(b *object) {
	kind := b.text("type")
	user := s.message.Role == "user"
	switch {
	case b.err != nil:
	case kind == "text":
		s.message.Parts = append(s.message.Parts, chat.Part{Type: "text", Text: b.text("text")})
		s.message.HasContent = true
	case kind == "image":
		s.message.Parts = append(s.message.Parts, image(b))
		s.message.HasContent = true
	case kind == "tool_result" && user:
		s.result(b)
	case kind == "tool_use" && !user:
		s.call(b)
	case kind == "thinking" && !user:
		s.thought.WriteString(b.text("thinking"))
		s.message.Reasoning = new(string) // simplify sets it
	case kind == "redacted_thinking" && !user: // encrypted for Anthropic's servers
	default:
		b.fail(malformed(b.at+"type", "`%stype`: %q is not a block that a turn of the %s may hold here.", b.at, kind, s.message.Role))
	}
}

// image reads an image block: base64 data, or a URL. What is wrong with it is its Fault,
// because a model of text refuses the block, whatever is in it.
func image(b *object) chat.Part {
	m := &chat.Media{Kind: "image", At: b.path(), What: `block of type "image"`}
	if b.get("source") == nil {
		m.Fault = malformed(b.at+"source", "Field required: `%ssource`.", b.at)
		return chat.Part{Type: "image", Media: m}
	}
	src := newObject(b.at+"source.", b.get("source"))
	switch kind := src.str("type"); {
	case src.err != nil:
	case kind == "url":
		m.URL = src.text("url")
	case kind == "base64" || kind == "":
		media := src.str("media_type")
		if media == "" {
			media = "image/jpeg"
		}
		m.URL = "data:" + media + ";base64," + src.text("data")
	default:
		src.wrong("type", "base64 or url")
	}
	m.Fault = src.err
	return chat.Part{Type: "image", Media: m}
}

// call adds a tool_use block.
func (s *turnBuilder) call(b *object) {
	c := chat.ToolCall{ID: b.text("id"), Name: b.text("name"), Arguments: "{}"}
	if v := b.get("input"); v != nil {
		var compact bytes.Buffer
		if v[0] != '{' || json.Compact(&compact, v) != nil {
			b.wrong("input", "an object")
		}
		c.Arguments = compact.String()
	}
	s.message.ToolCalls = append(s.message.ToolCalls, c)
}

// result adds a tool_result block, whose content is absent, a string, or blocks: the texts are
// joined by line breaks, and the images follow as a message of the user.
func (s *turnBuilder) result(b *object) {
	m := chat.Message{Role: "tool", ToolCallID: b.text("tool_use_id"), HasContent: true}
	var pictures []chat.Part
	b.flag("is_error") // the text has the error's message
	switch v := b.get("content"); {
	case v == nil:
	case v[0] == '"':
		m.Text = b.str("content")
	default:
		var texts []string
		for i, raw := range b.list("content") {
			p := newObject(fmt.Sprintf("%scontent.%d.", b.at, i), raw)
			switch kind := p.text("type"); {
			case p.err != nil:
			case kind == "image":
				pictures = append(pictures, image(p))
			case kind != "text":
				p.wrong("type", "text or image")
			default:
				texts = append(texts, p.text("text"))
			}
			if p.err != nil {
				b.fail(p.err)
				return
			}
		}
		m.Text = strings.Join(texts, "\n")
	}
	s.results = append(s.results, m)
	if pictures != nil {
		s.results = append(s.results, chat.Message{Role: "user", Parts: pictures, HasContent: true})
	}
}
