package dialect

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
)

// Parser parses one reply. Only one goroutine may use it.
type Parser struct {
	opts Options
	scan scanner
	out  sink
}

// UnknownError is the error for an unknown parser name.
type UnknownError struct {
	What  string // reasoning or tool call
	Name  string
	Known []string
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("no %s parser is called %q; there are %s", e.What, e.Name, strings.Join(e.Known, ", "))
}

// Check returns an *UnknownError for an unknown name, and a *PairError for names that cannot
// be combined.
func Check(reasoning, tools string) error {
	if _, ok := findReasoning(reasoning); reasoning != "" && !ok {
		return &UnknownError{"reasoning", reasoning, names(Reasonings())}
	}
	if _, ok := findTool(tools); tools != "" && !ok {
		return &UnknownError{"tool call", tools, names(Tools())}
	}
	if Harmony(reasoning, tools) && reasoning != "" && tools != "" && (reasoning != gptOSS || tools != openAI) {
		return &PairError{reasoning, tools}
	}
	return nil
}

// PairError is the error for two parsers that cannot parse the same text.
type PairError struct{ Reasoning, Tools string }

func (e *PairError) Error() string {
	return fmt.Sprintf("reasoning parser %s and tool call parser %s do not go together: %s and %s are one format", e.Reasoning, e.Tools, gptOSS, openAI)
}

// names returns all names and aliases.
func names(list []Entry) []string {
	var out []string
	for _, e := range list {
		out = append(out, e.Name)
		out = append(out, e.Aliases...)
	}
	return out
}

// New returns the parser of one reply. The errors are those of Check.
func New(o Options) (*Parser, error) {
	if err := Check(o.Reasoning, o.Tools); err != nil {
		return nil, err
	}
	p := &Parser{opts: o}
	p.scan.token = o.Token
	if o.Token == nil {
		p.scan.token = func(string) bool { return false }
	}
	p.out.opts, p.out.newID = &p.opts, o.NewID
	tool, _ := findTool(o.Tools)
	if o.NewID == nil {
		p.out.newID = randomID
		if tool.newID != nil {
			p.out.newID = tool.newID
		}
	}
	think, _ := findReasoning(o.Reasoning)
	p.scan.m = p.machine(think, tool)
	return p, nil
}

// machine combines the reasoning parser and the tool parser.
func (p *Parser) machine(think reasoning, tool tools) machine {
	var body machine
	switch {
	case Harmony(p.opts.Reasoning, p.opts.Tools):
		return newHarmony(p)
	case p.opts.Choice == Required:
		body = &required{calls: callReader{out: &p.out}}
	case p.opts.Choice == Named:
		body = &named{out: &p.out, name: p.opts.Function}
	case tool.body != nil && !(p.opts.Constrained && p.opts.Choice == None):
		body = tool.body(p)
	default:
		body = &plain{out: &p.out}
	}
	if think.spec != nil && think.spec.framed && p.opts.Choice != Required && p.opts.Choice != Named {
		body = newResponseFrame(p, body)
	}
	if think.spec == nil || !think.thinks(&p.opts) {
		return body
	}
	return newThinker(p, think.spec, body)
}

// Feed parses the next piece of text and returns the parts that are final.
func (p *Parser) Feed(text string) []Delta {
	p.scan.feed(text)
	return p.out.take()
}

// Thinking reports whether the next text is part of the reasoning. In harmony it returns
// false; there only the returned Deltas show the kind.
func (p *Parser) Thinking() bool {
	t, is := p.scan.m.(*thinker)
	return is && t.thought
}

// Mark parses a marker that was one token.
func (p *Parser) Mark(marker string) []Delta {
	p.scan.mark(marker)
	return p.out.take()
}

// Finish ends the reply, which stopped for the given reason (stop, length, abort). It
// returns the rest of the message and the finish_reason for the client: tool_calls if the
// model stopped after a call.
func (p *Parser) Finish(reason string) ([]Delta, string) {
	p.scan.end(reason != "stop", p.out.markup)
	p.out.end()
	if reason == "stop" && p.out.calls > 0 && p.opts.Choice != None && p.opts.Choice != Named {
		reason = "tool_calls"
	}
	return p.out.take(), reason
}

// pieceBytes is the size of the pieces in which Parse feeds a whole text, which bounds the
// text that is searched for markers.
const pieceBytes = 4096

// Parse parses a whole reply that ended for the given reason.
func Parse(o Options, text, reason string) (Message, string, error) {
	p, err := New(o)
	if err != nil {
		return Message{}, "", err
	}
	var m Message
	for text != "" {
		n := min(pieceBytes, len(text))
		m.Add(p.Feed(text[:n])...)
		text = text[n:]
	}
	last, reason := p.Finish(reason)
	m.Add(last...)
	return m, reason, nil
}

// Add appends deltas to the message.
func (m *Message) Add(deltas ...Delta) {
	for _, d := range deltas {
		switch d.Kind {
		case Reasoning:
			m.Reasoning += d.Text
		case Content:
			m.Content += d.Text
		case ToolCall:
			if d.Name != "" {
				m.Calls = append(m.Calls, Call{ID: d.ID, Name: d.Name})
			}
			m.Calls[d.Index].Arguments += d.Text
		}
	}
}

// plain is the machine for text without calls.
type plain struct{ out *sink }

func (p *plain) markers() []string { return nil }
func (p *plain) text(s string)     { p.out.content(s) }
func (p *plain) mark(string)       {}
func (p *plain) end(bool)          {}

// randomID returns a call ID in vLLM's default format.
func randomID() string {
	b := make([]byte, 16)
	rand.Read(b)
	return "chatcmpl-tool-" + hex.EncodeToString(b)
}
