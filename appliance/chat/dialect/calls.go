package dialect

import (
	"encoding/json"
	"strings"
)

// callReader reads {"name": …, "arguments": …} (or "parameters") as it comes. The
// call begins once its name is known and its arguments are under way, that is
// after the first key of an object, or with the whole of another value; before
// that what is no such object can still be given back. Arguments win over
// parameters, so that parameters wait for the end of the object.
type callReader struct {
	out   *sink
	whole bool // nothing is given out before the object is complete, and JSON

	f      follower
	raw    []byte // of the object so far, until the call has begun
	key    []byte // the one at the top that was read last, with its quotes
	value  []byte // of that key so far
	args   []byte // not given out yet
	name   string
	have   argKind
	live   bool // the value under way goes to args as it comes
	begun  bool
	broken bool // what follows the beginning is not JSON
	extra  bool // it has a key that calls do not have

	unnamed bool // it is no call since its name is empty
}

// argKind is which key the arguments are of.
type argKind uint8

const (
	noArgs argKind = iota
	parameters
	arguments
)

// status is what a callReader knows.
type status uint8

const (
	reading status = iota
	complete
	notCall // raw holds what was read
)

// read takes what belongs to the object from the start of s.
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

// byte follows one byte; the first one must open the object.
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

// inValue takes a byte behind the colon of a key at the top.
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

// kind is which arguments the present key holds.
func (r *callReader) kind() argKind {
	switch string(r.key) {
	case `"arguments"`:
		return arguments
	case `"parameters"`:
		return parameters
	}
	return noArgs
}

// keep takes the whole value of a key at the top.
func (r *callReader) keep(v []byte) bool {
	switch k := r.kind(); {
	case k > r.have:
		r.have, r.args = k, v
	case k != noArgs: // arguments win, and the first of them
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

// canBegin: the name is known, and what the arguments are is certain.
func (r *callReader) canBegin() bool {
	return r.begun || !r.whole && r.name != "" && r.have == arguments
}

// flush begins the call if it can begin, and gives out what is there of its
// arguments.
func (r *callReader) flush() {
	if r.canBegin() {
		r.give()
	}
}

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

// finish is the end of the object.
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

// cut is the end of the text within the object: a call whose name is known keeps
// the arguments so far.
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

// under reports that the arguments of a call with a name are under way.
func (r *callReader) under() bool {
	return r.name != "" && !r.extra && (r.have != noArgs || r.kind() != noArgs && len(r.value) > 0)
}

// looksCut reports that what there is of an object could become a call.
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
