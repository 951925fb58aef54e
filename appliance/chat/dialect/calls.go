package dialect

import (
	"encoding/json"
	"strings"
)

// callReader parses {"name": …, "arguments": …} (or "parameters") piece by piece. The call
// is reported once its name is known and its arguments have begun, that is after the first
// key of an object, or after the whole of another value. Until then, text that turns out to
// be no call can still become content. The key arguments takes precedence over parameters,
// so that parameters are reported only at the end of the object.
type callReader struct {
	out   *sink
	whole bool // report nothing before the object is complete and valid JSON

	f      follower
	raw    []byte // the object so far, until the call is reported
	key    []byte // the last key of the object, with its quotes
	value  []byte // the value of that key so far
	args   []byte // not reported yet
	name   string
	have   argKind
	live   bool // the current value is passed to args piece by piece
	begun  bool // the call is reported
	broken bool // the text after the beginning is not valid JSON
	extra  bool // the object has a key that calls do not have

	unnamed bool // not a call, because its name is empty
}

// argKind is the key of the arguments.
type argKind uint8

const (
	noArgs argKind = iota
	parameters
	arguments
)

// status is the result of a callReader so far.
type status uint8

const (
	reading status = iota
	complete
	notCall // raw holds what was read
)

// read parses the part of s that belongs to the object and returns its length.
func (r *callReader) read(s string) (n int, st status) {
	for n < len(s) {
		if r.broken { // the rest, up to the marker that ends it
			r.out.arguments(s[n:])
			return len(s), reading
		}
		c := s[n]
		n++
		if !r.begun {
			r.raw = append(r.raw, c)
		}
		switch ok := r.byte(c); {
		case !ok && !r.canBegin():
			return n, notCall
		case !ok:
			r.args, r.value = append(append(r.args, r.value...), c), nil
			r.broken = true
			r.flush()
		case r.f.over():
			return n, r.finish()
		}
	}
	r.flush()
	return n, reading
}

// byte parses one byte; the first one must open the object.
func (r *callReader) byte(c byte) bool {
	before, depth := r.f.at, r.f.depth()
	if depth == 0 && c != '{' || !r.f.next(c) {
		return false
	}
	switch {
	case depth == 0, depth == 1 && (before == wantColon || before == afterValue):
	case depth == 1 && (before == firstKey || before == wantKey):
		if r.f.at == inKey {
			r.key = append(r.key[:0], c)
		}
	case depth == 1 && (before == inKey || before == keyEscape):
		r.key = append(r.key, c)
	case before == wantValue && r.f.at == wantValue && depth == 1: // white space
	default:
		return r.inValue(c, before, depth)
	}
	return true
}

// inValue parses a byte of the value of a key.
func (r *callReader) inValue(c byte, before place, depth int) bool {
	ended := depth == 1 && before == inNumber && !numeric(c)
	if !ended {
		r.value = append(r.value, c)
		ended = r.f.depth() == 1 && r.f.at == afterValue
	}
	if depth == 2 && before == wantColon && r.kind() == arguments && r.have != arguments {
		r.have, r.live, r.args = arguments, true, nil
	}
	if r.live {
		r.args, r.value = append(r.args, r.value...), r.value[:0]
	}
	if !ended {
		return true
	}
	if r.live {
		r.live = false
		return true
	}
	v := r.value
	r.value = nil
	return r.keep(v)
}

// kind returns which arguments the current key holds.
func (r *callReader) kind() argKind {
	switch string(r.key) {
	case `"arguments"`:
		return arguments
	case `"parameters"`:
		return parameters
	}
	return noArgs
}

// keep stores the complete value of a key.
func (r *callReader) keep(v []byte) bool {
	switch k := r.kind(); {
	case k > r.have:
		r.have, r.args = k, v
	case k != noArgs: // arguments have precedence, and the first one of them
	case string(r.key) == `"name"` && !r.begun:
		name, ok := unquote(v)
		if !ok || name == "" {
			r.unnamed = ok
			return false
		}
		r.name = name
	case string(r.key) != `"type"` && string(r.key) != `"id"`:
		r.extra = true
	}
	return true
}

// canBegin reports whether the name is known and the arguments cannot be replaced any more.
func (r *callReader) canBegin() bool {
	return r.begun || !r.whole && r.name != "" && r.have == arguments
}

// flush reports the call if it can begin, with its arguments so far.
func (r *callReader) flush() {
	if r.canBegin() {
		r.give()
	}
}

// give reports the call, if it is not yet reported, and its new arguments.
func (r *callReader) give() {
	if !r.begun {
		r.begun, r.raw = true, nil
		r.out.begin(r.name)
	}
	if len(r.args) > 0 {
		r.out.arguments(string(r.args))
		r.args = r.args[:0]
	}
}

// finish ends a complete object.
func (r *callReader) finish() status {
	if !r.begun && r.name == "" || r.whole && (r.have == noArgs || !json.Valid(r.raw)) {
		return notCall
	}
	if r.have == noArgs {
		r.args = []byte("{}")
	}
	r.give()
	r.out.close()
	return complete
}

// cut ends an incomplete object at the end of the text. A call whose name is known keeps
// its arguments so far.
func (r *callReader) cut() status {
	if !r.begun && r.name == "" {
		return notCall
	}
	if r.have == noArgs && r.kind() != noArgs && len(r.value) > 0 {
		r.have, r.args = r.kind(), r.value
	}
	if r.have == noArgs {
		r.args = []byte("{}")
	}
	r.give()
	r.out.close()
	return complete
}

// under reports whether the arguments of a call with a name have begun.
func (r *callReader) under() bool {
	return r.name != "" && !r.extra && (r.have != noArgs || r.kind() != noArgs && len(r.value) > 0)
}

// looksCut reports whether the incomplete object could become a call.
func (r *callReader) looksCut() bool {
	if r.extra {
		return false
	}
	for _, known := range []string{`"name"`, `"parameters"`, `"arguments"`, `"type"`, `"id"`} {
		if strings.HasPrefix(known, string(r.key)) {
			return true
		}
	}
	return false
}
