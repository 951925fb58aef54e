package hub

import "fmt"

// Kind is what went wrong, for those who act on it.
type Kind uint8

// The kinds.
const (
	Unreachable  Kind = iota + 1 // no answer, or none that could be used
	Offline                      // asked not to use the network
	NotFound                     // no such repository, or a private one
	Unauthorized                 // the token is not accepted
	Gated                        // its authors want to be asked
	BadRevision                  // no such branch, tag or commit
	NoFile                       // the repository has no file of that name
	Unsuitable                   // nothing there that can be served
	NoSpace                      // the disk is too small
	Damaged                      // what came is not what the hub lists
	Untrusted                    // names or ids that no hub would give
	CacheFailed                  // the cache cannot be written
)

// Error says what is wrong and what to do, in one line.
type Error struct {
	Kind  Kind
	Name  Name
	Msg   string
	Cause error
}

func (e *Error) Error() string {
	return fmt.Sprintf("model %s: %s", e.Name, e.Msg)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

func (n Name) errorf(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Name: n, Msg: fmt.Sprintf(format, args...)}
}
