package dialect

import "strings"

// glm45 parses <tool_call>N\n<arg_key>K</arg_key>\n<arg_value>V</arg_value>\n</tool_call>. Values are
// plain text; the function's schema determines their JSON type.
type glm45 struct {
	out   *sink
	opts  *Options
	state glmState
	name  string // of a function or an argument, so far
	shown bool   // the call has no name and is shown with its markers

	schema schema // of the function
	some   bool   // an argument was reported
	kinds  kinds  // of the value
	value  []byte // not reported yet
	quoted bool   // the value is a string, which is reported piece by piece
}

type glmState uint8

const (
	glmOutside  glmState = iota
	glmName              // after <tool_call>
	glmFunction          // between arguments
	glmKey               // after <arg_key>
	glmKeyed             // after </arg_key>
	glmValue
)

const (
	argKey        = "<arg_key>"
	argKeyClose   = "</arg_key>"
	argValue      = "<arg_value>"
	argValueClose = "</arg_value>"
)

// glmMarkers are the markers of the dialect.
var glmMarkers = []string{toolOpen, toolClose, argKey, argKeyClose, argValue, argValueClose}

func newGLM45(p *Parser) machine { return &glm45{out: &p.out, opts: &p.opts} }

func (g *glm45) markers() []string { return glmMarkers }

func (g *glm45) text(s string) {
	switch g.state {
	case glmOutside, glmFunction, glmKeyed:
		g.out.content(s)
	case glmName, glmKey:
		if g.name += s; len(g.name) > maxName {
			g.untag()
		}
	case glmValue:
		g.add(s)
	}
	g.settle()
}

// untag adds text that is no name to the content.
func (g *glm45) untag() {
	if g.state == glmKey {
		g.state = glmFunction
		g.out.content(argKey + g.name)
		return
	}
	g.state, g.shown = glmOutside, true
	g.out.block(false)
	g.out.content(toolOpen + g.name)
}

// settle sets whether the sink is inside markup.
func (g *glm45) settle() {
	if g.state != glmOutside {
		g.out.block(g.state != glmValue)
	}
}

// add adds a piece of a value.
func (g *glm45) add(s string) {
	if g.quoted {
		g.out.arguments(string(appendEscaped(nil, s)))
		return
	}
	g.value = append(g.value, s...)
}

// begin reports a call.
func (g *glm45) begin() {
	name := strings.TrimSpace(g.name)
	g.state, g.some, g.schema = glmFunction, false, g.opts.parametersOf(name)
	g.out.begin(name)
	g.out.arguments("{")
}

// enter begins the value of an argument.
func (g *glm45) enter() {
	name := strings.TrimSpace(g.name)
	g.state, g.kinds, g.value = glmValue, g.schema.property(name).kinds(), g.value[:0]
	g.quoted = g.kinds == 0 || g.kinds == isString
	lead := ""
	if g.some {
		lead = ", "
	}
	g.some = true
	g.out.arguments(lead + quote(name) + ": ")
	if g.quoted {
		g.out.arguments(`"`)
	}
}

// endValue ends an argument.
func (g *glm45) endValue() {
	if g.quoted {
		g.out.arguments(`"`)
	} else {
		g.out.arguments(convert(string(g.value), g.kinds))
	}
	g.state = glmFunction
}

// close ends a call.
func (g *glm45) close() {
	g.out.arguments("}")
	g.out.close()
	g.state = glmOutside
}

func (g *glm45) mark(m string) {
	switch g.state {
	case glmOutside:
		g.outside(m)
	case glmName:
		if strings.TrimSpace(g.name) == "" || m != argKey && m != toolClose {
			g.untag()
			g.mark(m)
			return
		}
		g.begin()
		g.between(m)
	case glmFunction:
		g.between(m)
	case glmKey:
		if m == argKeyClose && strings.TrimSpace(g.name) != "" {
			g.state = glmKeyed
		} else {
			g.untag()
			g.between(m)
		}
	case glmKeyed:
		if m == argValue {
			g.enter()
		} else {
			g.state = glmFunction
			g.between(m)
		}
	case glmValue:
		if m == argValueClose {
			g.endValue()
		} else {
			g.add(m)
		}
	}
	g.settle()
}

// outside handles a marker outside calls.
func (g *glm45) outside(m string) {
	switch {
	case m == toolOpen:
		g.state, g.name, g.shown = glmName, "", false
	case m == toolClose && !g.shown:
		g.out.block(false)
	default:
		g.shown = g.shown && m != toolClose
		g.out.content(m)
	}
}

// between handles a marker between arguments.
func (g *glm45) between(m string) {
	switch m {
	case argKey:
		g.state, g.name = glmKey, ""
	case toolClose:
		g.close()
		g.out.block(false)
	case toolOpen: // the call has no end
		g.close()
		g.outside(m)
	}
}

// end ends the text. A name that was cut off is dropped.
func (g *glm45) end(cut bool) {
	switch g.state {
	case glmName:
		if !cut {
			g.untag()
		}
	case glmValue:
		g.endValue()
		g.close()
	case glmFunction, glmKey, glmKeyed:
		g.close()
	}
}

// renderGLM45 writes calls as the template of GLM-4.5 does.
func renderGLM45(m *Message) string {
	var b strings.Builder
	for _, call := range m.Calls {
		b.WriteString("\n" + toolOpen + call.Name)
		for _, p := range members(call.Arguments) {
			b.WriteString("\n" + argKey + p.key + argKeyClose + "\n" + argValue + p.plain() + argValueClose)
		}
		b.WriteString("\n" + toolClose)
	}
	return b.String()
}
