package schema

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Kind classifies a Problem.
type Kind string

// The kinds of a Problem.
const (
	Unreadable Kind = "unreadable" // file or folder cannot be read, or a folder has no single profile
	TooLarge   Kind = "too large"  // over a limit of the reader: bytes, nesting, complexity
	Syntax     Kind = "syntax"     // not CUE
	Import     Kind = "import"     // an import that cannot be resolved from this machine
	Unknown    Kind = "unknown"    // a field that is not in the schema
	Invalid    Kind = "invalid"    // wrong type, out of bounds, or not one of the allowed values
	Missing    Kind = "missing"    // a required field without a value
	Conflict   Kind = "conflict"   // fields that exclude each other, or two values for one field

	Policy Kind = "policy" // violates a policy of the folder or of a folder above it

	// Unsupported is a valid field that the plan cannot implement. Only Profile.Reject
	// returns it, never Load.
	Unsupported Kind = "unsupported"
)

// Position is a position in a file. Line and Column count from 1; 0 is the whole file.
// File is relative to the working directory if it is below it.
type Position struct {
	File         string
	Line, Column int
}

// String returns file:line:column.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Problem is one error in a profile.
type Problem struct {
	Kind    Kind
	Pos     Position
	Path    string // of the field, such as memory.kvCache; "" for the file
	Message string // one line
	Allowed string // the allowed values, or "" if describing them would not help
	Nearest string // the name that was probably intended, or ""
}

// String returns one line: file:line:col: path: message; did you mean …? allowed: …
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Pos.String() + ": ")
	if p.Path != "" && !strings.HasPrefix(p.Pos.File, "--set "+p.Path+"=") {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	end := "; "
	if p.Nearest != "" { // before the list, which may be long
		b.WriteString("; did you mean " + p.Nearest + "?")
		end = " "
	}
	if p.Allowed != "" {
		b.WriteString(end + "allowed: " + p.Allowed)
	}
	return OneLine(b.String())
}

// OneLine returns s with control characters replaced by spaces, so that a problem stays
// on one line.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// Error lists all problems of a profile by position. Load and Parse return no other type
// of error.
type Error struct{ List []Problem }

// Error returns one line per problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.List))
	for i, p := range e.List {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Kind returns the kind of the first problem.
func (e *Error) Kind() Kind { return e.List[0].Kind }

// problem returns an Error with one Problem about a whole file.
func problem(kind Kind, file, format string, args ...any) *Error {
	return &Error{List: []Problem{{Kind: kind, Pos: Position{File: shown(file)}, Message: fmt.Sprintf(format, args...)}}}
}

// newError returns an Error with the list sorted by position, without duplicates. The list
// must not be empty.
func newError(list []Problem) *Error {
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Pos.File, b.Pos.File), cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Column, b.Pos.Column), cmp.Compare(a.Path, b.Path))
	})
	return &Error{List: slices.CompactFunc(list, func(a, b Problem) bool { return a == b })}
}

// shown returns path relative to the working directory if it is below it.
func shown(path string) string {
	here, err := filepath.Abs(".")
	if err != nil || !filepath.IsAbs(path) {
		return path
	}
	rel, err := filepath.Rel(here, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return path
	}
	return rel
}
