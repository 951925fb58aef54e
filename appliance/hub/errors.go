package hub

import "fmt"

// Kind classifies an Error for its callers.
type Kind uint8

// The kinds.
const (
	Unreachable  Kind = iota + 1 // no answer, or no usable one
	Offline                      // the network may not be used
	NotFound                     // no such repository, or a private one
	Unauthorized                 // the token is not accepted
	Gated                        // access must be requested from the authors
	BadRevision                  // no such branch, tag or commit
	NoFile                       // the repository has no file of that name
	Unsuitable                   // no files that can be served
	NoSpace                      // not enough free disk space
	Damaged                      // the content differs from the hash or size that the hub lists
	Untrusted                    // names or ids that a correct hub does not send
	CacheFailed                  // the cache cannot be written
)

// Error is a failure with its remedy, in one line.
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
