package checkpoint

import (
	"errors"
	"fmt"
)

// Error is a one-line error about a file of a checkpoint; all refusals of this package have this
// type. File is the path. Field is the place in the file (a config key, a tensor, a metadata key),
// empty for the file as a whole. Msg is the problem and, if possible, the remedy.
type Error struct {
	File  string
	Field string
	Msg   string
	Err   error // the underlying error; may be nil
}

func (e *Error) Error() string {
	s := e.File
	if e.Field != "" {
		s += ": " + clip(e.Field)
	}
	return s + ": " + e.Msg
}

// Unwrap returns the cause, so that errors.Is(err, fs.ErrNotExist) works.
func (e *Error) Unwrap() error { return e.Err }

func fault(file, field, format string, args ...any) *Error {
	return &Error{File: file, Field: field, Msg: fmt.Sprintf(format, args...)}
}

func failed(file, field string, err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	return &Error{File: file, Field: field, Msg: err.Error(), Err: err}
}

// clip truncates text from an untrusted file before it is printed.
func clip(s string) string {
	const most = 120
	if len(s) > most {
		return fmt.Sprintf("%q… (%d bytes)", s[:most], len(s))
	}
	for _, r := range s {
		if r < ' ' || r == 0xfffd {
			return fmt.Sprintf("%q", s)
		}
	}
	return s
}
