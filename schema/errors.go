package schema

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Kind is what is wrong with a profile.
type Kind string

// The kinds of a Problem.
const (
	Unreadable Kind = "unreadable" // file or folder cannot be read, or a folder has no single profile
	TooLarge   Kind = "too large"  // over a limit of the reader: bytes, nesting, work
	Syntax     Kind = "syntax"     // not CUE
	Import     Kind = "import"     // an import that cannot be resolved from this machine
	Unknown    Kind = "unknown"    // a field that the schema lacks
	Invalid    Kind = "invalid"    // wrong type, out of bounds, not one of the words
	Missing    Kind = "missing"    // a field without value
	Conflict   Kind = "conflict"   // fields that exclude each other, or two values for one

	Policy Kind = "policy" // against a policy of the folder or of one above it

	// Unsupported is a field that is well formed and cannot be honoured yet; made
	// by Profile.Reject for those who plan, never by Load.
	Unsupported Kind = "unsupported"
)

// Position is a place in a file. Line and Column count from 1; 0 is the file
// as a whole. File is relative to the working directory where it lies below.
type Position struct {
	File         string
	Line, Column int
}

// String is file:line:column.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Problem is one thing wrong with a profile.
type Problem struct {
	Kind    Kind
	Pos     Position
	Path    string // of the field, such as memory.kvCache; "" for the file
	Message string // one line
	Allowed string // what the field takes, or "" where that says nothing
	Nearest string // the name that was probably meant, or ""
}

// String is one line: file:line:col: path: message; allowed: …; did you mean …?
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Pos.String() + ": ")
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Allowed != "" {
		b.WriteString("; allowed: " + p.Allowed)
	}
	if p.Nearest != "" {
		b.WriteString("; did you mean " + p.Nearest + "?")
	}
	return OneLine(b.String())
}

// OneLine keeps a problem on one line, whatever the input holds: control
// characters become spaces.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// Error is everything wrong with a profile, by place. Load and Parse return no
// other type of error.
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

// problem is an Error of one.
func problem(kind Kind, file, format string, args ...any) *Error {
	return &Error{List: []Problem{{Kind: kind, Pos: Position{File: shown(file)}, Message: fmt.Sprintf(format, args...)}}}
}

// newError sorts and drops doubles. The list must not be empty.
func newError(list []Problem) *Error {
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Pos.File, b.Pos.File), cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Column, b.Pos.Column), cmp.Compare(a.Path, b.Path))
	})
	return &Error{List: slices.CompactFunc(list, func(a, b Problem) bool { return a == b })}
}

// shown is the path relative to the working directory, where it lies below it.
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
