// Package dialect parses and renders the formats in which models write reasoning, content
// and tool calls. A reply may be parsed whole or piece by piece, with the same result. The
// package must not know tokens, chat templates or the API: it sees only text and markers.
// Start reading at Parser in parser.go; list.go lists the dialects.
package dialect

import "encoding/json"

// Message is a parsed message of an assistant.
type Message struct {
	Reasoning string
	Content   string
	Calls     []Call
}

// Call is one tool call. Arguments are JSON, or the text that the model wrote in its place.
type Call struct {
	ID        string
	Name      string
	Arguments string
}

// Kind is the part of a message that a Delta adds to.
type Kind uint8

// The kinds of a Delta.
const (
	Reasoning Kind = iota + 1
	Content
	ToolCall
)

// Delta is a part of a message. Text belongs to the reasoning, to the content, or to the
// arguments of call Index. Only the first Delta of a call has its ID and its Name.
type Delta struct {
	Kind  Kind
	Text  string
	Index int
	ID    string
	Name  string
}

// The values of Options.Choice.
const (
	Auto     = "auto"     // the model decides; also ""
	None     = "none"     // calls are removed from the content and not reported
	Required = "required" // the reply is a JSON array of {"name", "parameters"}
	Named    = "named"    // the reply is the arguments of Options.Function
)

// Options holds the properties of a request that determine how its reply is parsed.
type Options struct {
	Reasoning string // a name of Reasonings, "": the reply has no reasoning
	Tools     string // a name of Tools, "": the reply has no calls
	// Prompt is the rendered prompt. Its end determines whether the reply begins inside
	// reasoning. "": the dialect's default.
	Prompt    string
	Functions []json.RawMessage // tools of the request: {"type", "function": {"name", "parameters"}}
	Choice    string
	Function  string // the function of Choice Named
	// Constrained: a grammar constrains the text after the reasoning. Reasoning then ends
	// only at its own close marker and cannot begin again; with Choice None, the text after
	// it has no markers at all.
	Constrained   bool
	HideReasoning bool // include_reasoning false
	OneCall       bool // parallel_tool_calls false: later calls are left out
	Kwargs        map[string]json.RawMessage
	// Token reports whether the vocabulary has a marker as one token. Such a marker is
	// passed to Parser.Mark; the same characters in a text are not a marker. nil: every
	// marker is text.
	Token func(marker string) bool
	NewID func() string // returns the ID of a call; nil: random IDs in the dialect's format
}

// thinks returns enable_thinking of chat_template_kwargs; the default is true.
func (o *Options) thinks() bool { return string(o.Kwargs["enable_thinking"]) != "false" }
