package dialect

import "strings"

// olmo3 parses <function_calls>f(a=1)\ng()</function_calls>: Python calls with keyword arguments, one a
// line. Calls are reported at the end of their block; a block of other text is content.
type olmo3 struct {
	out    *sink
	inside bool   // of a block
	held   []byte // the block so far
}

const (
	callsOpen  = "<function_calls>"
	callsClose = "</function_calls>"
)

var olmo3Markers = []string{callsOpen, callsClose}

func newOlmo3(p *Parser) machine { return &olmo3{out: &p.out} }

func (o *olmo3) markers() []string { return olmo3Markers }

func (o *olmo3) text(s string) {
	if o.inside {
		o.held = append(o.held, s...)
		return
	}
	o.out.content(s)
}

func (o *olmo3) mark(m string) {
	switch {
	case o.inside && m == callsOpen:
		o.held = append(o.held, m...)
	case o.inside:
		o.finish(false, m)
	case m == callsOpen:
		o.inside, o.held = true, nil
		o.out.block(true)
	}
}

// finish ends a block; end is its close marker.
func (o *olmo3) finish(cut bool, end string) {
	text := string(o.held)
	o.inside, o.held = false, nil
	calls, st := pythonLines(text)
	for _, c := range calls {
		o.out.begin(c.Name)
		o.out.arguments(c.Arguments)
		o.out.close()
	}
	o.out.block(false)
	switch {
	case st != notPython && (len(calls) > 0 || cut):
	case strings.HasPrefix(strings.TrimSpace(text), "("): // a call without a name
		o.out.content(callsOpen + text + end)
	default:
		o.out.content(text)
	}
}

func (o *olmo3) end(cut bool) {
	if o.inside {
		o.finish(cut, "")
	}
}

// renderOlmo3 writes calls as OLMo 3's template does.
func renderOlmo3(m *Message) string {
	var lines []string
	for _, c := range m.Calls {
		var b strings.Builder
		pythonCall(&b, c)
		lines = append(lines, b.String())
	}
	return callsOpen + strings.Join(lines, "\n") + callsClose
}
