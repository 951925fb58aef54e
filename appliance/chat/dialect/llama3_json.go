package dialect

import "strings"

// llama3JSON: every object at the top that has a name and parameters (or
// arguments, which win) is a call, with ";" between them. A text is held back from
// a "{" on until it is a call or cannot be one.
type llama3JSON struct {
	out    *sink
	none   bool // no calls are looked for
	inside bool // an object
	after  bool // a call: separators are markup
	tagged bool // the tag came last
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

// prose takes text up to an object.
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

// spill gives an object that is no call out as content.
func (l *llama3JSON) spill() {
	if l.tagged && l.call.unnamed {
		l.out.content(pythonTag)
	}
	l.inside, l.after, l.tagged = false, false, false
	l.out.content(string(l.call.raw))
}

// mark: the tag says that a call follows; what it says goes without it.
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

// end: an object that is not complete is a call once its arguments have begun. One
// that was cut before, and looks like a call so far, is markup.
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

// renderLlama3JSON writes calls as Llama 3's template asks for them.
func renderLlama3JSON(m *Message) string {
	var list []string
	for _, c := range m.Calls {
		list = append(list, `{"name": `+quote(c.Name)+`, "parameters": `+orEmpty(c.Arguments)+"}")
	}
	return strings.Join(list, "; ")
}
