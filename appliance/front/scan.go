package front

import (
	"bytes"

	"vapp.dev/appliance/api/rawjson"
)

// mostName is the most bytes of a name, as written, that a scan keeps. Longer names are not the
// name of any model.
const mostName = 4096

// scan finds the member "model" of a JSON object that comes in pieces. It keeps that value only,
// and does not check the rest of the text: the server that gets the request does.
type scan struct {
	state   state
	depth   int    // of arrays and objects within a member's value
	text    []byte // the string that is read, with its quotes
	escaped bool   // the byte before was a backslash
	long    bool   // the string is longer than mostName
	quoted  bool   // within a string of a value that is not kept
	model   bool   // the member's name is "model"
	found   string
}

// state is what a scan expects next.
type state byte

const (
	atStart state = iota // the object
	atName               // a member's name, or the end
	inName
	atColon
	atValue // of a member
	inValue // a number, a word, an array or an object
	inString
	afterValue
	ended   // without a model
	isFound // found has the model's name
)

// done reports whether no more text is needed.
func (s *scan) done() bool { return s.state == ended || s.state == isFound }

// write reads the next piece of the text.
func (s *scan) write(b []byte) {
	for i := 0; i < len(b) && !s.done(); i++ {
		if s.state == inValue && s.quoted && !s.escaped { // texts are most of a body
			n := bytes.IndexAny(b[i:], "\"\\")
			if n < 0 {
				return
			}
			i += n
		}
		s.next(b[i])
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// next reads one byte.
func (s *scan) next(c byte) {
	switch s.state {
	case inName, inString:
		s.inText(c)
		return
	case inValue:
		s.inside(c)
		return
	}
	if isSpace(c) {
		return
	}
	switch {
	case s.state == atStart && c == '{':
		s.state = atName
	case s.state == atName && c == '"':
		s.begin(inName)
	case s.state == atColon && c == ':':
		s.state = atValue
	case s.state == atValue && c == '"' && s.model:
		s.begin(inString)
	case s.state == atValue && c != ',' && c != '}' && c != ']':
		s.state, s.depth, s.quoted = inValue, 0, false
		s.inside(c)
	case s.state == afterValue && c == ',':
		s.state = atName
	default: // the end, or no JSON object
		s.state = ended
	}
}

// begin begins a string that is kept.
func (s *scan) begin(st state) {
	s.state, s.text, s.escaped, s.long = st, append(s.text[:0], '"'), false, false
}

// inText reads a byte of a string that is kept.
func (s *scan) inText(c byte) {
	if len(s.text) < mostName {
		s.text = append(s.text, c)
	} else {
		s.long = true
	}
	switch {
	case s.escaped:
		s.escaped = false
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.end()
	}
}

// end ends a string that is kept.
func (s *scan) end() {
	text, ok := "", false
	if !s.long {
		text, ok = rawjson.String(s.text)
	}
	if s.state == inName {
		s.state, s.model = atColon, ok && text == "model"
		return
	}
	s.state, s.found = isFound, text
	if !ok {
		s.found = "\x00" // a name that no model has
	}
}

// inside reads a byte of a value that is not kept.
func (s *scan) inside(c byte) {
	switch {
	case s.quoted:
		switch {
		case s.escaped:
			s.escaped = false
		case c == '\\':
			s.escaped = true
		case c == '"':
			s.quoted = false
			s.leave()
		}
	case c == '"':
		s.quoted, s.escaped = true, false
	case c == '{', c == '[':
		s.depth++
	case (c == '}' || c == ']') && s.depth == 0: // the object's own, behind a number or a word
		s.state = ended
	case c == '}', c == ']':
		s.depth--
		s.leave()
	case c == ',' && s.depth == 0:
		s.state = atName
	}
}

// leave ends the value if it is complete.
func (s *scan) leave() {
	if s.depth == 0 {
		s.state = afterValue
	}
}
