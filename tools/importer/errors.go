package importer

import (
	"fmt"
	"strings"

	"vapp.dev/schema"
)

// Kind is what keeps a command line from becoming a profile.
type Kind string

// The kinds of a Problem.
const (
	NotFound   Kind = "not found"  // no command that starts vLLM, or several
	Syntax     Kind = "syntax"     // quotes, YAML or JSON that cannot be read
	TooLarge   Kind = "too large"  // over a limit of the reader
	Unknown    Kind = "unknown"    // a flag that vLLM lacks
	Invalid    Kind = "invalid"    // a value that the flag or the profile cannot take
	Missing    Kind = "missing"    // a flag without its value, a command without a model
	Unresolved Kind = "unresolved" // a value that only a shell at run time knows
	Refused    Kind = "refused"    // what vapp is not for
)

// Place is where something stands: a line of a text, or a word of a command
// line; both count from 1, and 0 is unknown.
type Place struct {
	Name string // of the text, such as stdin; "" for a command line
	Line int
	Arg  int
}

// String is "stdin:12", "line 2", "argument 5", or "" where nothing is known.
func (p Place) String() string {
	switch {
	case p.Name != "" && p.Line > 0:
		return fmt.Sprintf("%s:%d", p.Name, p.Line)
	case p.Name != "":
		return p.Name
	case p.Line > 0:
		return fmt.Sprintf("line %d", p.Line)
	case p.Arg > 0:
		return fmt.Sprintf("argument %d", p.Arg)
	}
	return ""
}

// Problem is one thing that is in the way.
type Problem struct {
	Kind    Kind
	Place   Place
	Message string
	Remedy  string // what to do, or ""
}

// String is one line: place: message; remedy.
func (p Problem) String() string {
	s := p.Message
	if at := p.Place.String(); at != "" {
		s = at + ": " + s
	}
	if p.Remedy != "" {
		s += "; " + p.Remedy
	}
	return schema.OneLine(s)
}

// Error is everything that is in the way, in the order of the command line.
// Args and Text return no other type of error.
type Error struct{ List []Problem }

// Error is one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.List))
	for i, p := range e.List {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Kind is that of the first problem.
func (e *Error) Kind() Kind { return e.List[0].Kind }

// failure is an Error of one.
func failure(k Kind, at Place, remedy, format string, args ...any) *Error {
	return &Error{List: []Problem{{Kind: k, Place: at, Message: fmt.Sprintf(format, args...), Remedy: remedy}}}
}
