// Package chat turns requests into tokens for the engine and tokens into replies: it
// checks and renders a request, encodes its prompts, submits them, and decodes the
// replies. Its errors have a Kind. It must not know HTTP or the JSON of a protocol:
// packages openai and anthropic below appliance/api convert to and from its types.
// Start reading at Service.Start in service.go.
package chat

import (
	"encoding/json"
	"slices"
	"strings"
)

// Message is one turn. Its content is Text, or Parts when the client sent a
// list. HasContent distinguishes an empty text from no content.
type Message struct {
	Role       string // system, user, assistant, tool, or another role of the template
	Text       string
	Parts      []Part // not nil: content came as a list
	HasContent bool   // false: null or absent
	Name       string
	ToolCallID string // of a tool message
	ToolCalls  []ToolCall
	Reasoning  *string           // the assistant's reasoning
	Tools      []json.RawMessage // functions that a developer message declares
}

// Part is one piece of content: a text, or Media.
type Part struct {
	Type  string // text, refusal, thinking, or a type of media
	Text  string
	Media *Media // not nil: Text is empty
}

// ToolCall is a call that an assistant made earlier.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string // as the model wrote them: usually JSON
}

// Conversation is the input of a chat template.
type Conversation struct {
	Messages            []Message // at least one
	Tools               []json.RawMessage
	Documents           []json.RawMessage
	Template            string // sent with the request; the settings must allow it
	TemplateKwargs      map[string]json.RawMessage
	ReasoningEffort     string
	AddGenerationPrompt bool
	ContinueFinal       bool // continue_final_message: the reply continues the last message
	// ProcessorKwargs and MediaKwargs are mm_processor_kwargs and media_io_kwargs of the
	// request; Vision reads them.
	ProcessorKwargs, MediaKwargs map[string]json.RawMessage
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

// Prompt is a text, or tokens if Tokens is not nil.
type Prompt struct {
	Text   string
	Tokens []int32
}

// replyRole returns the role of the reply.
func (c *Conversation) replyRole() string {
	if c.AddGenerationPrompt {
		return "assistant"
	}
	return c.Messages[len(c.Messages)-1].Role
}

// kwargs returns the template variables of a conversation other than its messages. The
// request's own override the variables set by reasoning_effort, which override the server's.
func (c *Conversation) kwargs(set *Settings) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for k, x := range set.TemplateKwargs {
		out[k] = x
	}
	if c.ReasoningEffort != "" {
		out["reasoning_effort"], _ = json.Marshal(c.ReasoningEffort)
	}
	if c.ReasoningEffort == "none" {
		out["enable_thinking"] = json.RawMessage("false")
	}
	for k, x := range c.TemplateKwargs {
		out[k] = x
	}
	return out
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

// text returns the texts of the content as one string; parts are joined by line ends.
func (m Message) text() string {
	if m.Parts == nil {
		return m.Text
	}
	var texts []string
	for _, p := range m.Parts {
		if p.Media == nil {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}
