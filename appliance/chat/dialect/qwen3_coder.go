package dialect

import (
	"encoding/json"
	"strings"
)

// qwenCoder: <tool_call><function=N><parameter=K>\nV\n</parameter>…</function>
// </tool_call>. Values are plain text and become JSON by the function's schema.
type qwenCoder struct {
	out   *sink
	opts  *Options
	state coderState
	name  string // of a function or a parameter, as far as it has come
	lead  string // of the present block up to its first function
	shown bool   // the block is shown with its markers

	schema schema // of the function
	some   bool   // it has a parameter already
	kinds  kinds  // of the value
	first  bool   // the value has just begun: one line end is markup
	value  []byte // not given out yet
	quoted bool   // the value is given out as it comes: a string and nothing else
	shut   string // what came may be the end of a value that has no </parameter>
}

type coderState uint8

const (
	coderOutside  coderState = iota
	coderName                // behind <function=
	coderFunction            // between parameters
	coderKey                 // behind <parameter=
	coderValue
	coderShut // in a value, behind what may end it
)

const (
	functionOpen   = "<function="
	functionClose  = "</function>"
	parameterOpen  = "<parameter="
	parameterClose = "</parameter>"
)

var coderMarkers = []string{toolOpen, toolClose, functionOpen, functionClose, parameterOpen, parameterClose}

func newQwenCoder(p *Parser) machine { return &qwenCoder{out: &p.out, opts: &p.opts} }

func (q *qwenCoder) markers() []string { return coderMarkers }

// maxName bounds a name in a tag: what is longer is no tag.
const maxName = 256

func (q *qwenCoder) text(s string) {
	switch q.state {
	case coderOutside:
		if q.lead != "" && strings.TrimSpace(s) == "" {
			q.lead += s
			return
		}
		q.out.content(strings.TrimPrefix(q.lead, toolOpen) + s)
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

// tag takes the rest of <function= or <parameter=.
func (q *qwenCoder) tag(s string) {
	head, rest, closed := strings.Cut(s, ">")
	q.name += head
	if strings.Contains(q.name, "<") || len(q.name) > maxName || closed && strings.TrimSpace(q.name) == "" {
		q.untag()
		if closed {
			rest = ">" + rest
		}
	} else if closed {
		q.enter(strings.TrimSpace(q.name))
		q.settle()
	}
	if closed && rest != "" {
		q.text(rest)
	}
}

// untag gives a tag that is none out as content.
func (q *qwenCoder) untag() {
	if q.state == coderName {
		if q.state = coderOutside; strings.TrimSpace(q.name) == "" {
			q.shown = true
			q.out.content(q.lead)
		}
		q.lead = ""
		q.out.content(functionOpen + q.name)
		return
	}
	q.state = coderFunction
	q.out.content(parameterOpen + q.name)
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

// add takes a piece of a value.
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

// unshut makes what may have been the end of a value a part of it.
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
		case functionOpen:
			q.state, q.name = coderName, ""
		case toolOpen, toolClose:
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

// toolMark takes a marker around functions.
func (q *qwenCoder) toolMark(m string) {
	if q.shown && m == toolClose {
		q.out.content(m)
	}
	q.shown, q.lead = false, ""
	if m == toolOpen {
		q.lead = m
	}
	q.out.block(m == toolOpen)
}

// settle tells the sink where the text is.
func (q *qwenCoder) settle() {
	if q.state != coderOutside {
		q.out.block(q.state != coderValue && q.state != coderShut)
	}
}

// between takes a marker between parameters.
func (q *qwenCoder) between(m string) {
	switch m {
	case parameterOpen:
		q.state, q.name = coderKey, ""
	case parameterClose:
	case functionClose:
		q.close()
		q.out.block(true)
	case toolClose:
		q.close()
		q.out.block(false)
	default: // the end of the function is missing
		q.close()
		q.mark(m)
	}
}

func (q *qwenCoder) inValue(m string) {
	switch m {
	case parameterClose:
		q.endValue()
	case parameterOpen:
		q.endValue()
		q.state, q.name = coderKey, ""
	case functionClose, toolClose:
		q.state, q.shut = coderShut, m
	default:
		q.add(m)
	}
}

// afterShut decides: </function> ends a value without </parameter> where the call
// ends or another function begins, </tool_call> where another call begins.
func (q *qwenCoder) afterShut(m string) {
	function := strings.HasPrefix(q.shut, functionClose)
	if m == toolOpen || function && (m == toolClose || m == functionOpen) {
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

// renderQwenCoder writes calls as the template of Qwen3-Coder does.
func renderQwenCoder(m *Message) string {
	var b strings.Builder
	for _, c := range m.Calls {
		b.WriteString("\n" + toolOpen + "\n" + functionOpen + c.Name + ">\n")
		for _, p := range members(c.Arguments) {
			b.WriteString(parameterOpen + p.key + ">\n" + p.plain() + "\n" + parameterClose + "\n")
		}
		b.WriteString(functionClose + "\n" + toolClose)
	}
	return b.String()
}

// member is a key of a JSON object with its value.
type member struct {
	key   string
	value json.RawMessage
}

// plain is a string without its quotes, and any other value as it is.
func (m member) plain() string {
	if s, ok := unquote(m.value); ok {
		return s
	}
	return string(m.value)
}

// members takes a JSON object apart, in order; nil where it is none.
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
