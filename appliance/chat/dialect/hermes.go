package dialect

import "strings"

// hermes parses <tool_call>{"name": N, "arguments": {…}}</tool_call>, once per call. A block
// with anything else is content.
type hermes struct {
	out   *sink
	state hermesState
	call  callReader
	lead  string // the current block up to its first object
	shown bool   // the block is shown with its markers
}

type hermesState uint8

const (
	outside   hermesState = iota
	openBlock             // only white space so far, or after an object
	inObject
	badBlock // content up to the next marker
)

const (
	toolOpen  = "<tool_call>"
	toolClose = "</tool_call>"
)

var hermesMarkers = []string{toolOpen, toolClose}

func newHermes(p *Parser) machine { return &hermes{out: &p.out} }

func (h *hermes) markers() []string { return hermesMarkers }

func (h *hermes) text(s string) {
	for s != "" {
		switch h.state {
		case outside, badBlock:
			h.out.content(s)
			return
		case openBlock:
			// models write white space or an extra bracket after an object
			rest := strings.TrimLeft(s, " \t\r\n}]")
			if h.lead != "" {
				h.lead += s[:len(s)-len(rest)]
			}
			s = rest
			if s == "" {
				return
			}
			if s[0] != '{' {
				h.state = badBlock
				continue
			}
			h.call, h.state = callReader{out: h.out}, inObject
		case inObject:
			n, st := h.call.read(s)
			s = s[n:]
			switch st {
			case complete:
				h.state, h.lead = openBlock, ""
			case notCall:
				h.state = badBlock
				if h.call.unnamed {
					h.shown = true
					h.out.content(h.lead)
				}
				h.out.content(string(h.call.raw))
			}
		}
	}
}

func (h *hermes) mark(m string) {
	if h.state == inObject {
		if h.call.f.quoted() && !h.call.broken {
			h.text(m) // part of an argument
			return
		}
		h.stop()
	}
	if h.shown && m == toolClose {
		h.out.content(m)
	}
	h.state, h.shown = outside, false
	if m == toolOpen {
		h.state, h.lead = openBlock, m
	}
}

// stop ends an object that is not complete.
func (h *hermes) stop() {
	if h.call.cut() == notCall && h.call.f.depth() > 0 {
		h.out.content(string(h.call.raw))
	}
}

// end ends the text. A block that was cut off before its name is dropped.
func (h *hermes) end(bool) {
	if h.state == inObject {
		h.call.cut()
	}
}

// renderHermes writes calls as the template of Qwen2.5 and Qwen3 does.
func renderHermes(m *Message) string {
	var b strings.Builder
	for _, c := range m.Calls {
		b.WriteString("\n" + toolOpen + "\n{\"name\": " + quote(c.Name) + ", \"arguments\": " + orEmpty(c.Arguments) + "}\n" + toolClose)
	}
	return b.String()
}

// orEmpty returns the arguments, or an empty object if there are none.
func orEmpty(arguments string) string {
	if arguments == "" {
		return "{}"
	}
	return arguments
}
