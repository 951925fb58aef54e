package dialect

import "strings"

// required parses the array that tool_choice "required" forces:
// [{"name": …, "parameters": …}, …]. Text after the array is ignored.
type required struct {
	calls callReader
	state forcedState
}

type forcedState uint8

const (
	beforeArray forcedState = iota
	inArray
	inElement
	afterArray
	noArray // the text is content
)

func (r *required) markers() []string { return nil }
func (r *required) mark(string)       {}

func (r *required) text(s string) {
	for s != "" {
		switch r.state {
		case afterArray:
			return
		case noArray:
			r.calls.out.content(s)
			return
		case inElement:
			n, st := r.calls.read(s)
			s = s[n:]
			switch st {
			case complete:
				r.state = inArray
			case notCall:
				r.state = noArray
				r.calls.out.content(string(r.calls.raw))
			}
		default:
			s = r.between(strings.TrimLeft(s, " \t\r\n"))
		}
	}
}

// between parses the brackets and commas around the calls and returns the rest of s.
func (r *required) between(s string) string {
	if s == "" {
		return s
	}
	switch c := s[0]; {
	case c == '[' && r.state == beforeArray:
		r.state = inArray
	case c == ',' && r.state == inArray:
	case c == ']' && r.state == inArray:
		r.state = afterArray
	case c == '{' && r.state == inArray:
		r.calls, r.state = callReader{out: r.calls.out}, inElement
		return s
	default:
		r.state = noArray
		return s
	}
	return s[1:]
}

func (r *required) end(bool) {
	if r.state == inElement {
		r.calls.cut()
	}
}

// named parses the reply to a tool_choice that names a function: the whole text is its
// arguments.
type named struct {
	out  *sink
	name string
}

func (n *named) markers() []string { return nil }
func (n *named) mark(string)       {}

func (n *named) text(s string) {
	if !n.out.inCall {
		if s = strings.TrimLeft(s, " \t\r\n"); s == "" {
			return
		}
		n.out.begin(n.name)
	}
	n.out.arguments(s)
}

func (n *named) end(bool) {
	if !n.out.inCall {
		n.out.begin(n.name)
		n.out.arguments("{}")
	}
	n.out.close()
}
