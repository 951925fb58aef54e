// Package chat is a conversation with a model: what may be asked, the one
// pipeline from a request to tokens and back to text, and errors that have a
// Kind. Protocols are converted to and from its types elsewhere.
package chat

import (
	"encoding/json"
	"slices"
)

// Message is one turn. Its content is Text, or Parts when the client sent a
// list; HasContent tells an empty text from none.
type Message struct {
	Role       string // system, user, assistant, tool, or what the template knows
	Text       string
	Parts      []Part // not nil: content came as a list
	HasContent bool   // false: null or absent
	Name       string
	ToolCallID string // of a tool message
	ToolCalls  []ToolCall
	Reasoning  *string           // what an assistant thought
	Tools      []json.RawMessage // of a developer's message: functions
}

// Part is one piece of text content.
type Part struct {
	Type string // text, refusal, thinking
	Text string
}

// ToolCall is a call that an assistant made earlier.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string // as written: JSON, or any text
}

// Conversation is what a chat template renders.
type Conversation struct {
	Messages            []Message // at least one
	Tools               []json.RawMessage
	Documents           []json.RawMessage
	Template            string // came with the request; needs trust
	TemplateKwargs      map[string]json.RawMessage
	ReasoningEffort     string
	AddGenerationPrompt bool
	ContinueFinal       bool // go on where the last message ends
}

// OwnTools returns the functions that the messages declare.
func (c *Conversation) OwnTools() []json.RawMessage {
	var out []json.RawMessage
	for _, m := range c.Messages {
		out = append(out, m.Tools...)
	}
	return out
}

// AllTools returns the functions of the request and of its messages.
func (c *Conversation) AllTools() []json.RawMessage { return slices.Concat(c.Tools, c.OwnTools()) }

// Prompt is a ready text, or tokens when Tokens is not nil.
type Prompt struct {
	Text   string
	Tokens []int32
}

// replyRole is the role of the answer: who speaks next.
func (c *Conversation) replyRole() string {
	if c.AddGenerationPrompt {
		return "assistant"
	}
	return c.Messages[len(c.Messages)-1].Role
}

// size returns the bytes of a message's texts.
func (m Message) size() int {
	n := len(m.Role) + len(m.Text) + len(m.Name) + len(m.ToolCallID)
	for _, p := range m.Parts {
		n += len(p.Text)
	}
	for _, c := range m.ToolCalls {
		n += len(c.ID) + len(c.Name) + len(c.Arguments)
	}
	if m.Reasoning != nil {
		n += len(*m.Reasoning)
	}
	return n
}

// text is the content as one string; parts are joined by line ends.
func (m Message) text() string {
	if m.Parts == nil {
		return m.Text
	}
	var b []byte
	for i, p := range m.Parts {
		if i > 0 {
			b = append(b, '\n')
		}
		b = append(b, p.Text...)
	}
	return string(b)
}
