package dialect

import "strings"

// llama3JSON parses replies in which every top-level object with a name and parameters (or
// arguments, which have precedence) is a call, separated by ";". From a "{" on, the text is
// held back until it is a call or cannot become one.
type llama3JSON struct {
	out    *sink
	none   bool // tool_choice is none: all text is content
	inside bool // inside an object
	after  bool // after a call, where separators are markup
	tagged bool // the last marker was the tag
	call   callReader
}

const pythonTag = "<|python_tag|>"

var llama3Markers = []string{pythonTag}

func newLlama3JSON(p *Parser) machine {
	return &llama3JSON{out: &p.out, none: p.opts.Choice == None}
}

func (l *llama3JSON) markers() []string { return llama3Markers }

func (l *llama3JSON) text(s string) {
	for s != "" {
		switch {
		case l.inside:
			n, st := l.call.read(s)
			s = s[n:]
			switch st {
			case complete:
				l.inside, l.after, l.tagged = false, true, false
			case notCall:
				l.spill()
			}
		case l.none:
			l.out.content(s)
			return
		default:
			s = l.prose(s)
		}
	}
}

// prose parses text up to an object and returns the rest.
func (l *llama3JSON) prose(s string) string {
	if l.after {
		if s = strings.TrimLeft(s, " \t\r\n;"); s == "" {
			return s
		}
	}
	n := strings.IndexByte(s, '{')
	if n < 0 {
		n = len(s)
	}
	if n > 0 {
		l.after, l.tagged = false, l.tagged && strings.TrimSpace(s[:n]) == ""
		l.out.content(s[:n])
	}
	if n < len(s) {
		l.inside, l.call = true, callReader{out: l.out, whole: true}
	}
	return s[n:]
}

// spill adds an object that is not a call to the content.
func (l *llama3JSON) spill() {
	if l.tagged && l.call.unnamed {
		l.out.content(pythonTag)
	}
	l.inside, l.after, l.tagged = false, false, false
	l.out.content(string(l.call.raw))
}

// mark handles the tag, which announces a call and is itself dropped.
func (l *llama3JSON) mark(m string) {
	if !l.inside {
		l.tagged = true
		return
	}
	if l.call.f.quoted() {
		l.text(m)
		return
	}
	l.end(false)
	l.tagged = true
}

// end ends the text. An incomplete object is a call if its arguments have begun. If it was
// cut off before and could become a call, it is dropped; otherwise it is content.
func (l *llama3JSON) end(cut bool) {
	switch {
	case !l.inside:
	case l.call.under(), cut && l.call.looksCut():
		l.inside = false
		l.call.cut()
	default:
		l.spill()
	}
}

// renderLlama3JSON writes calls in the format that Llama 3's template asks for.
func renderLlama3JSON(m *Message) string {
	var list []string
	for _, c := range m.Calls {
		list = append(list, `{"name": `+quote(c.Name)+`, "parameters": `+orEmpty(c.Arguments)+"}")
	}
	return strings.Join(list, "; ")
}
