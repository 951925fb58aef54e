package dialect

import (
	"encoding/json"
	"strings"
)

// pythonic parses replies that are a Python list of calls with keyword arguments. Because
// text after the list makes all of it content, calls are reported only at the end. Text that
// cannot become such a list is content at once.
type pythonic struct {
	out   *sink
	none  bool
	held  []byte // held back
	next  int    // length of held at which it is parsed again
	prose bool   // the text is content
	begun bool   // the start marker was read
	shown bool   // a call has no name, so that the list is shown with its markers
}

const (
	pythonStart = "<|python_start|>"
	pythonEnd   = "<|python_end|>"
)

var pythonicMarkers = []string{pythonStart, pythonEnd}

func newPythonic(p *Parser) machine { return &pythonic{out: &p.out, none: p.opts.Choice == None} }

func (p *pythonic) markers() []string { return pythonicMarkers }

// mark handles the markers around the list.
func (p *pythonic) mark(m string) {
	if m == pythonStart {
		p.begun = !p.prose && len(p.held) == 0
		return
	}
	if !p.prose && !p.none {
		p.look()
	}
	if p.shown {
		p.out.content(m)
	}
	p.shown = false
}

func (p *pythonic) text(s string) {
	if p.prose || p.none {
		p.out.content(s)
		return
	}
	p.held = append(p.held, s...)
	if len(p.held) < p.next {
		return
	}
	p.next = len(p.held) + len(p.held)/2
	p.look()
}

// look adds the held text to the content if it cannot become a list of calls.
func (p *pythonic) look() {
	if _, st := pythonCalls(string(p.held)); st == notPython {
		p.spill()
	}
}

// spill adds the held text to the content.
func (p *pythonic) spill() {
	p.prose = true
	if open, is := strings.CutPrefix(strings.TrimSpace(string(p.held)), "["); p.begun && is && strings.HasPrefix(strings.TrimSpace(open), "(") {
		p.shown = true
		p.out.content(pythonStart)
	}
	if len(p.held) > 0 {
		p.out.content(string(p.held))
		p.held = nil
	}
}

func (p *pythonic) end(cut bool) {
	if p.prose {
		return
	}
	calls, st := pythonCalls(string(p.held))
	if st == notPython || len(calls) == 0 && !cut {
		p.spill()
		return
	}
	for _, c := range calls {
		p.out.begin(c.Name)
		p.out.arguments(c.Arguments)
		p.out.close()
	}
}

// renderPythonic writes calls in the format that Llama 4's pythonic template asks for.
func renderPythonic(m *Message) string {
	var b strings.Builder
	for i, c := range m.Calls {
		b.WriteString(map[bool]string{true: "[", false: ", "}[i == 0])
		pythonCall(&b, c)
	}
	return b.String() + "]"
}

// pythonCall writes a call with keyword arguments.
func pythonCall(b *strings.Builder, c Call) {
	b.WriteString(c.Name + "(")
	for j, a := range members(c.Arguments) {
		if j > 0 {
			b.WriteString(", ")
		}
		b.WriteString(a.key + "=")
		python(b, a.value)
	}
	b.WriteByte(')')
}

// python writes a JSON value as a Python literal.
func python(b *strings.Builder, v json.RawMessage) {
	var list []json.RawMessage
	switch s, isText := unquote(v); {
	case isText:
		b.WriteByte('\'')
		b.WriteString(strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(s))
		b.WriteByte('\'')
	case v[0] == '{':
		b.WriteByte('{')
		for i, m := range members(string(v)) {
			if i > 0 {
				b.WriteString(", ")
			}
			python(b, json.RawMessage(quote(m.key)))
			b.WriteString(": ")
			python(b, m.value)
		}
		b.WriteByte('}')
	case v[0] == '[' && json.Unmarshal(v, &list) == nil:
		b.WriteByte('[')
		for i, x := range list {
			if i > 0 {
				b.WriteString(", ")
			}
			python(b, x)
		}
		b.WriteByte(']')
	default:
		b.WriteString(strings.NewReplacer("true", "True", "false", "False", "null", "None").Replace(string(v)))
	}
}
