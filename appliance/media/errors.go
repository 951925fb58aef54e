package media

import "fmt"

// Reason classifies why an image is refused.
type Reason int

const (
	// NotImage is data of no format that is read.
	NotImage Reason = iota + 1
	// Unsupported is a valid file with a feature that is not read.
	Unsupported
	// Damaged is a file that breaks the rules of its format.
	Damaged
	// Truncated is a file that ends too early.
	Truncated
	// TooLarge is an image or animation beyond the caller's bounds.
	TooLarge
	// Failed is a failure of the decoder itself, such as a caught panic.
	Failed
)

var reasonNames = [...]string{"", "not an image", "unsupported", "damaged", "truncated", "too large", "failed"}

// String returns the reason in words.
func (r Reason) String() string {
	if r > 0 && int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason %d", int(r))
}

// Error is a one-line error about an image.
type Error struct {
	Reason Reason
	Format Format // "": unknown
	Msg    string
}

func (e *Error) Error() string {
	if e.Format == "" {
		return "image: " + e.Msg
	}
	return string(e.Format) + " image: " + e.Msg
}

func refuse(r Reason, f Format, msg string, args ...any) *Error {
	return &Error{Reason: r, Format: f, Msg: fmt.Sprintf(msg, args...)}
}

// endsEarly is the error of a header that the data does not hold.
func endsEarly(f Format) *Error {
	return refuse(Truncated, f, "the file ends before its pixels")
}
