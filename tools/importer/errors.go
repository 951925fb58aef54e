package importer

import (
	"fmt"
	"strings"

	"vapp.dev/schema"
)

// Kind classifies problems.
type Kind string

// The kinds of a Problem.
const (
	NotFound   Kind = "not found"  // no command that starts vLLM, or several
	Syntax     Kind = "syntax"     // invalid quotes, YAML or JSON
	TooLarge   Kind = "too large"  // over a limit of this package
	Unknown    Kind = "unknown"    // a flag that vLLM does not have
	Invalid    Kind = "invalid"    // a value that the flag or the profile does not accept
	Missing    Kind = "missing"    // a flag without its value, a command without a model
	Unresolved Kind = "unresolved" // a value that only a shell can expand at run time
	Refused    Kind = "refused"    // a feature that vapp does not have
)

// Place is a position: a line of a text, or a word of a command line. Both count from 1; 0 is
// unknown.
type Place struct {
	Name string // of the text, such as stdin; "" for a command line
	Line int
	Arg  int
}

// String returns "stdin:12", "line 2", "argument 5", or "" where nothing is known.
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

// Problem is one reason why a command line cannot be imported.
type Problem struct {
	Kind    Kind
	Place   Place
	Message string
	Remedy  string // what the user can do, or ""
}

// String returns one line: place: message; remedy.
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

// Error has all problems, in the order of the command line. Args and Text return no other type of
// error.
type Error struct{ List []Problem }

// Error returns one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.List))
	for i, p := range e.List {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Kind returns the kind of the first problem.
func (e *Error) Kind() Kind { return e.List[0].Kind }

// failure returns an Error with one problem.
func failure(k Kind, at Place, remedy, format string, args ...any) *Error {
	return &Error{List: []Problem{{Kind: k, Place: at, Message: fmt.Sprintf(format, args...), Remedy: remedy}}}
}
