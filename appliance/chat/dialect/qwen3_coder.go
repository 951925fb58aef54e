package dialect

import (
	"encoding/json"
	"strings"
)

// qwenCoder parses <tool_call><function=N><parameter=K>\nV\n</parameter>…</function>
// </tool_call>. Values are plain text; the function's schema determines their JSON type.
type qwenCoder struct {
	out  *sink
	opts *Options
	coder
	state coderState
	marks []string
	name  string // of a function or a parameter, so far
	lead  string // the current block up to its first function
	shown bool   // the block is shown with its markers

	schema schema // of the function
	some   bool   // a parameter was reported
	kinds  kinds  // of the value
	first  bool   // at the start of the value, where one line end is markup
	value  []byte // not reported yet
	quoted bool   // the value is a string, which is reported piece by piece
	shut   string // text that may be the end of a value without </parameter>
}

type coderState uint8

const (
	coderOutside  coderState = iota
	coderName                // after <function=
	coderFunction            // between parameters
	coderKey                 // after <parameter=
	coderValue
	coderShut // in a value, after text that may end it
)

// coder holds what differs between the dialects: the markers around all functions, the starts of the
// tags of a function and of a parameter, up to the name, and their ends.
type coder struct {
	open, shutting          string
	function, functionEnd   string
	parameter, parameterEnd string
	quotes                  bool // names are in double quotes
}

var (
	qwenTags    = tags(toolOpen, toolClose)
	seedTags    = tags("<seed:tool_call>", "</seed:tool_call>")
	minimaxTags = coder{
		open: "<minimax:tool_call>", shutting: "</minimax:tool_call>", function: "<invoke name=", functionEnd: "</invoke>",
		parameter: "<parameter name=", parameterEnd: "</parameter>", quotes: true,
	}
)

// tags returns Qwen3-Coder's markers between two others.
func tags(open, shutting string) coder {
	return coder{open: open, shutting: shutting, function: "<function=", functionEnd: "</function>", parameter: "<parameter=", parameterEnd: "</parameter>"}
}

// outer returns the markers that a vocabulary may have as tokens.
func (c coder) outer() []string { return []string{c.open, c.shutting} }

// newMachine returns a machine that parses the dialect's calls.
func (c coder) newMachine(p *Parser) machine {
	return &qwenCoder{out: &p.out, opts: &p.opts, coder: c, marks: append(c.outer(), c.function, c.functionEnd, c.parameter, c.parameterEnd)}
}

func (q *qwenCoder) markers() []string { return q.marks }

// maxName bounds the name in a tag; longer text is not a tag.
const maxName = 256

func (q *qwenCoder) text(s string) {
	switch q.state {
	case coderOutside:
		if q.lead != "" && strings.TrimSpace(s) == "" {
			q.lead += s
			return
		}
		q.out.content(strings.TrimPrefix(q.lead, q.open) + s)
		q.lead = ""
	case coderFunction:
		q.out.content(s)
	case coderName, coderKey:
		q.tag(s)
	case coderValue:
		q.add(s)
	case coderShut:
		if strings.TrimSpace(s) == "" {
			q.shut += s
			return
		}
		q.unshut()
		q.add(s)
	}
	q.settle()
}

// tag parses the rest of <function= or <parameter=.
func (q *qwenCoder) tag(s string) {
	head, rest, closed := strings.Cut(s, ">")
	q.name += head
	if strings.Contains(q.name, "<") || len(q.name) > maxName || closed && q.bare(q.name) == "" {
		q.untag()
		if closed {
			rest = ">" + rest
		}
	} else if closed {
		q.enter(q.bare(q.name))
		q.settle()
	}
	if closed && rest != "" {
		q.text(rest)
	}
}

// untag adds text that is not a tag to the content.
func (q *qwenCoder) untag() {
	if q.state == coderName {
		if q.state = coderOutside; q.bare(q.name) == "" {
			q.shown = true
			q.out.content(q.lead)
		}
		q.lead = ""
		q.out.content(q.function + q.name)
		return
	}
	q.state = coderFunction
	q.out.content(q.parameter + q.name)
}

// enter begins a function or a parameter.
func (q *qwenCoder) enter(name string) {
	if q.state == coderName {
		q.state, q.some, q.schema = coderFunction, false, q.opts.parametersOf(name)
		q.lead = ""
		q.out.begin(name)
		q.out.arguments("{")
		return
	}
	q.state, q.first, q.kinds = coderValue, true, q.schema.property(name).kinds()
	q.quoted = q.kinds == 0 || q.kinds == isString
	lead := ", "
	if !q.some {
		lead = ""
	}
	q.some = true
	q.out.arguments(lead + quote(name) + ": ")
	if q.quoted {
		q.out.arguments(`"`)
	}
}

// add adds a piece of a value.
func (q *qwenCoder) add(s string) {
	if q.first {
		s, q.first = strings.TrimPrefix(s, "\n"), false
	}
	q.value = append(q.value, s...)
	if n := len(q.value); q.quoted && n > 0 {
		if q.value[n-1] == '\n' { // markup, if the value ends here
			n--
		}
		q.out.arguments(string(appendEscaped(nil, string(q.value[:n]))))
		q.value = append(q.value[:0], q.value[n:]...)
	}
}

// endValue ends a parameter.
func (q *qwenCoder) endValue() {
	text := strings.TrimSuffix(string(q.value), "\n")
	if q.quoted {
		q.out.arguments(`"`)
	} else {
		q.out.arguments(convert(text, q.kinds))
	}
	q.value, q.shut = q.value[:0], ""
	q.state = coderFunction
}

// unshut adds text that turned out not to end a value to the value.
func (q *qwenCoder) unshut() {
	s := q.shut
	q.state, q.shut = coderValue, ""
	q.add(s)
}

// close ends a function.
func (q *qwenCoder) close() {
	q.out.arguments("}")
	q.out.close()
	q.state = coderOutside
}

func (q *qwenCoder) mark(m string) {
	switch q.state {
	case coderOutside:
		switch m {
		case q.function:
			q.state, q.name = coderName, ""
		case q.open, q.shutting:
			q.toolMark(m)
		default:
			q.out.content(m)
		}
	case coderName, coderKey:
		q.untag()
		q.mark(m)
	case coderFunction:
		q.between(m)
	case coderValue:
		q.inValue(m)
	case coderShut:
		q.afterShut(m)
	}
	q.settle()
}

// toolMark handles a marker around functions.
func (q *qwenCoder) toolMark(m string) {
	if q.shown && m == q.shutting {
		q.out.content(m)
	}
	q.shown, q.lead = false, ""
	if m == q.open {
		q.lead = m
	}
	q.out.block(m == q.open)
}

// settle sets whether the sink is inside markup.
func (q *qwenCoder) settle() {
	if q.state != coderOutside {
		q.out.block(q.state != coderValue && q.state != coderShut)
	}
}

// between handles a marker between parameters.
func (q *qwenCoder) between(m string) {
	switch m {
	case q.parameter:
		q.state, q.name = coderKey, ""
	case q.parameterEnd:
	case q.functionEnd:
		q.close()
		q.out.block(true)
	case q.shutting:
		q.close()
		q.out.block(false)
	default: // the function has no end
		q.close()
		q.mark(m)
	}
}

// inValue handles a marker in a value.
func (q *qwenCoder) inValue(m string) {
	switch m {
	case q.parameterEnd:
		q.endValue()
	case q.parameter:
		q.endValue()
		q.state, q.name = coderKey, ""
	case q.functionEnd, q.shutting:
		q.state, q.shut = coderShut, m
	default:
		q.add(m)
	}
}

// afterShut handles the marker after text that may end a value without </parameter>.
// </function> ends the value if the call ends or another function begins; </tool_call> ends
// it if another call begins.
func (q *qwenCoder) afterShut(m string) {
	function := strings.HasPrefix(q.shut, q.functionEnd)
	if m == q.open || function && (m == q.shutting || m == q.function) {
		q.endValue()
		q.close()
		q.out.block(true)
		q.mark(m)
		return
	}
	q.unshut()
	q.inValue(m)
}

func (q *qwenCoder) end(bool) {
	switch q.state {
	case coderValue, coderShut:
		q.endValue()
		q.close()
	case coderFunction, coderKey:
		q.close()
	}
}

// bare returns the name in a tag.
func (c coder) bare(name string) string {
	name = strings.TrimSpace(name)
	if c.quotes {
		name = strings.TrimSpace(strings.Trim(name, `"`))
	}
	return name
}

// named returns a name as tags have it.
func (c coder) named(name string) string {
	if c.quotes {
		return `"` + name + `"`
	}
	return name
}

// render writes calls as the templates of Qwen3-Coder and MiniMax do.
func (c coder) render(m *Message) string {
	var b strings.Builder
	for _, call := range m.Calls {
		b.WriteString("\n" + c.open + "\n" + c.function + c.named(call.Name) + ">\n")
		for _, p := range members(call.Arguments) {
			b.WriteString(c.parameter + c.named(p.key) + ">\n" + p.plain() + "\n" + c.parameterEnd + "\n")
		}
		b.WriteString(c.functionEnd + "\n" + c.shutting)
	}
	return b.String()
}

// member is a key of a JSON object and its value.
type member struct {
	key   string
	value json.RawMessage
}

// plain returns a string without its quotes, and any other value unchanged.
func (m member) plain() string {
	if s, ok := unquote(m.value); ok {
		return s
	}
	return string(m.value)
}

// members returns the members of a JSON object in their order; nil if it is not an object.
func members(object string) []member {
	d := json.NewDecoder(strings.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	var out []member
	for d.More() {
		t, err := d.Token()
		key, is := t.(string)
		var m = member{key: key}
		if err != nil || !is || d.Decode(&m.value) != nil {
			return nil
		}
		out = append(out, m)
	}
	return out
}
