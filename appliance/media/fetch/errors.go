package fetch

import (
	"fmt"
	"strconv"
)

// Reason classifies the errors of a fetch.
type Reason uint8

// The reasons, with the HTTP status of vLLM for each.
const (
	Refused       Reason = iota // 400: the policy or the form of the URL forbids it
	Unprocessable               // 422: the URL leads to nothing that can be used
	Unsupported                 // 501: a form of URL that no server reads
	Failed                      // 500: the source does not answer, or answers with a fault of its own
)

// Error is why a URL was not fetched. Message is one line for the client. It has no address
// that a name was resolved to; Cause may have it, for logs.
type Error struct {
	Reason  Reason
	Message string
	Cause   error
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Message + ": " + e.Cause.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

func refused(cause error, format string, args ...any) *Error {
	return &Error{Refused, fmt.Sprintf(format, args...), cause}
}

func unprocessable(cause error, format string, args ...any) *Error {
	return &Error{Unprocessable, fmt.Sprintf(format, args...), cause}
}

func failed(cause error, format string, args ...any) *Error {
	return &Error{Failed, fmt.Sprintf(format, args...), cause}
}

// mebibytes returns n in MiB, as short as it can be.
func mebibytes(n int64) string { return strconv.FormatFloat(float64(n)/(1<<20), 'g', -1, 64) }
