package dialect

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// pythonStatus is the result of parsing a text as a Python list of calls.
type pythonStatus uint8

const (
	notPython   pythonStatus = iota
	cutPython                // the beginning of a list of calls
	wholePython              // a list of calls and nothing else
)

// pythonCalls parses a list of calls whose keyword arguments are literals. Of an incomplete
// list it returns the calls whose argument list has begun; the last one has only its
// complete arguments.
func pythonCalls(text string) ([]Call, pythonStatus) {
	p := &pyReader{text: text}
	calls, ok := p.calls()
	return p.status(calls, ok)
}

// pythonLines is pythonCalls for calls without brackets around them, one a line.
func pythonLines(text string) ([]Call, pythonStatus) {
	p := &pyReader{text: text}
	calls, ok := p.lines()
	return p.status(calls, ok)
}

// status returns the calls that were read, and how.
func (p *pyReader) status(calls []Call, ok bool) ([]Call, pythonStatus) {
	switch {
	case !ok && p.cut:
		return calls, cutPython
	case !ok:
		return nil, notPython
	}
	return calls, wholePython
}

// pyReader converts Python literals to JSON. Its methods return false if the text is
// invalid or incomplete; in the latter case they set cut.
type pyReader struct {
	text  string
	cut   bool
	depth int
}

// space skips white space and reports whether there is more text.
func (p *pyReader) space() bool {
	p.text = strings.TrimLeft(p.text, " \t\r\n")
	p.cut = p.cut || p.text == ""
	return p.text != ""
}

// take skips white space and c, which must be next.
func (p *pyReader) take(c byte) bool {
	if !p.space() || p.text[0] != c {
		return false
	}
	p.text = p.text[1:]
	return true
}

func (p *pyReader) calls() (list []Call, ok bool) {
	if !p.take('[') {
		return nil, false
	}
	for {
		if list, ok = p.call(list); !ok {
			return list, false
		}
		if p.take(']') {
			break
		}
		if !p.take(',') {
			return list, false
		}
		if p.take(']') {
			break
		}
	}
	p.text = strings.TrimLeft(p.text, " \t\r\n")
	return list, p.text == "" && !p.cut
}

// call adds the next call to list, as soon as its argument list has begun.
func (p *pyReader) call(list []Call) ([]Call, bool) {
	name, ok := p.name(true)
	if !ok || !p.take('(') {
		return list, false
	}
	args, ok := p.keywords()
	return append(list, Call{Name: name, Arguments: args}), ok
}

// lines parses calls that white space separates.
func (p *pyReader) lines() (list []Call, ok bool) {
	for {
		if p.text = strings.TrimLeft(p.text, " \t\r\n"); p.text == "" {
			return list, true
		}
		if list, ok = p.call(list); !ok {
			return list, false
		}
	}
}

// name parses an identifier, with dots if dotted.
func (p *pyReader) name(dotted bool) (string, bool) {
	if !p.space() {
		return "", false
	}
	n, start := 0, true
	for n < len(p.text) {
		r, size := utf8.DecodeRuneInString(p.text[n:])
		switch {
		case r == '_' || unicode.IsLetter(r) || !start && unicode.IsDigit(r):
			start = false
		case r == '.' && dotted && !start:
			start = true
		default:
			name := p.text[:n]
			p.text = p.text[n:]
			return name, !start
		}
		n += size
	}
	p.text, p.cut = "", true
	return "", false
}

// keywords parses the keyword arguments of a call and returns them as a JSON object, of an
// incomplete list the complete ones.
func (p *pyReader) keywords() (string, bool) {
	b, seen := []byte("{"), map[string]bool{}
	for first := true; ; first = false {
		if p.take(')') {
			return string(append(b, '}')), true
		}
		if !first && !p.take(',') {
			break
		}
		if p.take(')') && !first {
			return string(append(b, '}')), true
		}
		key, ok := p.name(false)
		if !ok || seen[key] || !p.take('=') {
			break
		}
		seen[key] = true
		v, ok := p.value()
		if v != "" {
			if len(b) > 1 {
				b = append(b, ", "...)
			}
			b = append(append(appendQuoted(b, key), ": "...), v...)
		}
		if !ok {
			break
		}
	}
	return string(append(b, '}')), false
}

// value parses a literal and returns it as JSON. Of an incomplete one it returns the part
// that can be kept, or "".
func (p *pyReader) value() (string, bool) {
	if !p.space() || p.depth == maxDepth {
		return "", false
	}
	p.depth++
	defer func() { p.depth-- }()
	switch c := p.text[0]; {
	case c == '\'' || c == '"':
		return p.string()
	case c == '[':
		p.text = p.text[1:]
		return p.list(']', false)
	case c == '(':
		p.text = p.text[1:]
		return p.list(')', true)
	case c == '{':
		p.text = p.text[1:]
		return p.dict()
	case c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.':
		return p.number()
	}
	word, ok := p.name(false)
	v, known := map[string]string{"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}[word]
	return v, ok && known
}

func (p *pyReader) number() (string, bool) {
	n := 0
	for n < len(p.text) && (numeric(p.text[n]) || p.text[n] == '_') {
		n++
	}
	t := strings.ReplaceAll(p.text[:n], "_", "")
	p.text = p.text[n:]
	p.cut = p.cut || p.text == ""
	v := ""
	if x, err := strconv.ParseFloat(t, 64); decimal(t) {
		v = integer(t)
	} else if err == nil && json.Valid([]byte(t)) {
		v = t
	} else if err == nil {
		v = strconv.FormatFloat(x, 'f', -1, 64)
	}
	return v, v != "" && !p.cut
}

// list parses the elements of a list or tuple up to the bracket shut. A single value in
// parentheses is the value itself.
func (p *pyReader) list(shut byte, tuple bool) (string, bool) {
	var items []string
	join := func() string { return "[" + strings.Join(items, ", ") + "]" }
	for commas := 0; ; commas++ {
		if p.take(shut) {
			return join(), true
		}
		v, ok := p.value()
		if v != "" {
			items = append(items, v)
		}
		if !ok {
			return join(), false
		}
		if p.take(shut) {
			if tuple && commas == 0 {
				return v, true
			}
			return join(), true
		}
		if !p.take(',') {
			return join(), false
		}
	}
}

func (p *pyReader) dict() (string, bool) {
	b := []byte("{")
	for {
		if p.take('}') {
			return string(append(b, '}')), true
		}
		if !p.space() || p.text[0] != '\'' && p.text[0] != '"' {
			break
		}
		key, ok := p.string()
		if !ok || !p.take(':') {
			break
		}
		v, ok := p.value()
		if v != "" {
			if len(b) > 1 {
				b = append(b, ", "...)
			}
			b = append(append(append(b, key...), ": "...), v...)
		}
		if !ok {
			break
		}
		if p.take('}') {
			return string(append(b, '}')), true
		}
		if !p.take(',') {
			break
		}
	}
	return string(append(b, '}')), false
}

// string parses a string with single, double or triple quotes and returns it as JSON.
func (p *pyReader) string() (string, bool) {
	q := p.text[:1]
	if strings.HasPrefix(p.text, q+q+q) {
		q = q + q + q
	} else if p.text == q+q { // may become a triple quote
		p.cut = true
	}
	p.text = p.text[len(q):]
	var b []byte
	for p.text != "" {
		if rest, is := strings.CutPrefix(p.text, q); is {
			p.text = rest
			return quote(strings.ToValidUTF8(string(b), "\ufffd")), true
		}
		if p.text[0] != '\\' {
			b = append(b, p.text[0])
			p.text = p.text[1:]
			continue
		}
		if b = p.escape(b); p.cut {
			break
		}
	}
	p.cut = true
	return quote(strings.ToValidUTF8(string(b), "\ufffd")), false
}

// escape parses an escape sequence; unknown ones are kept unchanged.
func (p *pyReader) escape(b []byte) []byte {
	if len(p.text) < 2 {
		p.text, p.cut = "", true
		return b
	}
	c := p.text[1]
	if digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]; digits > 0 {
		return p.code(b, p.text[2:min(len(p.text), 2+digits)], digits, 16)
	}
	if c >= '0' && c <= '7' {
		n := 1
		for n < 3 && n+1 < len(p.text) && p.text[n+1] >= '0' && p.text[n+1] <= '7' {
			n++
		}
		p.text = p.text[1:]
		return p.coded(b, p.text[:n], 8)
	}
	p.text = p.text[2:]
	if c == '\n' {
		return b
	}
	if i := strings.IndexByte(`\'"abfnrtv`, c); i >= 0 {
		return append(b, "\\'\"\a\b\f\n\r\t\v"[i])
	}
	return append(b, '\\', c)
}

// code parses the digits of a numeric escape.
func (p *pyReader) code(b []byte, digits string, want, base int) []byte {
	switch {
	case strings.Trim(digits, "0123456789abcdefABCDEF") != "":
		b = append(b, p.text[:2]...)
		p.text = p.text[2:]
		return b
	case len(digits) < want:
		p.text, p.cut = "", true
		return b
	}
	p.text = p.text[2:]
	return p.coded(b, digits, base)
}

// coded appends the character with this code.
func (p *pyReader) coded(b []byte, digits string, base int) []byte {
	p.text = p.text[len(digits):]
	n, _ := strconv.ParseUint(digits, base, 32)
	return utf8.AppendRune(b, rune(min(n, unicode.MaxRune+1)))
}
