package chat

import (
	"context"
	"errors"
	"fmt"

	"vapp.dev/engine"
)

// Kind is what went wrong, in classes that protocols answer differently.
type Kind uint8

// The kinds; the zero Kind is an internal error, whose text is not for clients.
const (
	Internal     Kind = iota
	Malformed         // the body is not what its route takes
	Invalid           // a value is out of range or not allowed here
	TooLong           // it does not fit the model's context
	NotFound          // no such model
	Unauthorized      // no key or a wrong one
	Unsupported       // known, and not available in this deployment
	Limited           // a key asks for more than its share
	Overloaded        // too many requests are waiting
	Unavailable       // not ready yet, or shutting down
	Gone              // the client left
)

// String names the kind, for logs.
func (k Kind) String() string {
	return [...]string{"internal", "malformed", "invalid", "too long", "not found", "unauthorized",
		"unsupported", "limited", "overloaded", "unavailable", "gone"}[k]
}

// Error is an error with a Kind. Param is the field it is about, "" when it is
// about none.
type Error struct {
	Kind    Kind
	Param   string
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

// Errorf makes an Error without a cause.
func Errorf(k Kind, param, format string, args ...any) *Error {
	return &Error{Kind: k, Param: param, Message: fmt.Sprintf(format, args...)}
}

func invalid(param, format string, args ...any) *Error {
	return Errorf(Invalid, param, format, args...)
}

// AsError turns any error into one with a Kind: the engine's sentinels have
// theirs, what nobody knows is Internal.
func AsError(err error) *Error {
	var known *Error
	var long *engine.TooLongError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &long):
		return &Error{Kind: TooLong, Param: "input_tokens", Message: long.Error()}
	case errors.Is(err, engine.ErrOverloaded):
		return &Error{Kind: Overloaded, Message: "The server is overloaded: too many requests are waiting. Please try again later."}
	case errors.Is(err, engine.ErrClosed):
		return &Error{Kind: Unavailable, Message: "The server is shutting down. Please try again later."}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &Error{Kind: Gone, Message: "The client closed the request.", Cause: err}
	case errors.Is(err, engine.ErrDead):
		return &Error{Kind: Internal, Message: "The engine has failed.", Cause: err}
	}
	return &Error{Kind: Internal, Message: "Internal server error.", Cause: err}
}
