// Package dialect is the formats that models write their messages in: each is
// rendered to text and parsed from it, whole or piece by piece, with the same
// result. It knows text and markers, no tokens, no templates and no protocol.
package dialect

import "encoding/json"

// Message is what an assistant said.
type Message struct {
	Reasoning string
	Content   string
	Calls     []Call
}

// Call is one tool call. Arguments are JSON, or what the model wrote in its place.
type Call struct {
	ID        string
	Name      string
	Arguments string
}

// Kind says what a Delta adds to.
type Kind uint8

// The kinds of a Delta.
const (
	Reasoning Kind = iota + 1
	Content
	ToolCall
)

// Delta is what a message has gained. Text is of reasoning, of content, or of the
// arguments of call Index. The first Delta of a call has its ID and its whole
// Name, the later ones neither.
type Delta struct {
	Kind  Kind
	Text  string
	Index int
	ID    string
	Name  string
}

// The words of Options.Choice.
const (
	Auto     = "auto"     // the model decides; also ""
	None     = "none"     // calls are taken out and not reported
	Required = "required" // the reply is a JSON array of {"name", "parameters"}
	Named    = "named"    // the reply is the arguments of Options.Function
)

// Options are the facts of a request that decide how its reply is read.
type Options struct {
	Reasoning string // a name of Reasonings, "": the reply has no reasoning
	Tools     string // a name of Tools, "": the reply has no calls
	// Prompt is the rendered prompt: its end says whether the reply begins
	// inside a thought. "": the dialect's own rule.
	Prompt    string
	Functions []json.RawMessage // tools of the request: {"type", "function": {"name", "parameters"}}
	Choice    string
	Function  string // the one that is Named
	// Constrained: a grammar decides what follows the thought. The thought ends at its
	// own close marker alone, and no other may begin in what follows; with Choice None
	// nothing in what follows is a marker.
	Constrained   bool
	HideReasoning bool // include_reasoning false
	OneCall       bool // parallel_tool_calls false: later calls are left out
	Kwargs        map[string]json.RawMessage
	// Token reports that the vocabulary has a marker as one token. Such a marker
	// comes by Parser.Mark alone: the same characters in a text mean nothing.
	// nil: every marker is text.
	Token func(marker string) bool
	NewID func() string // of a call; nil: random ones in the dialect's form
}

// thinks reports what chat_template_kwargs say of enable_thinking; the default is
// true.
func (o *Options) thinks() bool { return string(o.Kwargs["enable_thinking"]) != "false" }
