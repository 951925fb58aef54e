package chat

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vapp.dev/engine"
)

// Kind classifies errors; protocols answer each kind in their own way.
type Kind uint8

// The kinds. The text of an Internal error, the zero Kind, is not sent to clients.
const (
	Internal     Kind = iota
	Malformed         // the body does not match the route's schema
	Invalid           // a value is out of range or not allowed here
	TooLong           // it exceeds the model's context
	NotFound          // no such model
	Unauthorized      // no key or a wrong one
	Unsupported       // known, but not available in this deployment
	Limited           // a key exceeds its limits
	Overloaded        // too many requests are waiting
	Unavailable       // not ready yet, or shutting down
	Gone              // the client left

	Unprocessable // it names media that cannot be fetched or used
	Unreachable   // the server of media that it names does not answer

	// InvalidUserInput is vLLM's type of errors about the names of adapters.
	InvalidUserInput
)

// String returns the name of the kind, for logs.
func (k Kind) String() string {
	return [...]string{"internal", "malformed", "invalid", "too long", "not found", "unauthorized",
		"unsupported", "limited", "overloaded", "unavailable", "gone", "unprocessable", "unreachable", "invalid user input"}[k]
}

// Error is an error with a Kind. Param is the request field that caused it, "" if none
// did.
type Error struct {
	Kind    Kind
	Param   string
	Message string
	Cause   error
	// RetryAfter is after what time an Unavailable request may succeed; 0: unknown.
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Message + ": " + e.Cause.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Errorf returns an Error without a cause.
func Errorf(k Kind, param, format string, args ...any) *Error {
	return &Error{Kind: k, Param: param, Message: fmt.Sprintf(format, args...)}
}

func invalid(param, format string, args ...any) *Error {
	return Errorf(Invalid, param, format, args...)
}

// AsError returns err as an *Error. The engine's sentinel errors have kinds of their own; an
// unknown error is Internal.
func AsError(err error) *Error {
	var known *Error
	var long *engine.TooLongError
	var adapter *engine.AdapterError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &long):
		return &Error{Kind: TooLong, Param: "input_tokens", Message: long.Error()}
	case errors.As(err, &adapter) && adapter.Kind == engine.AdapterUnknown: // unloaded since its name was resolved
		return unknownModel(adapter.Name)
	case errors.As(err, &adapter):
		return &Error{Kind: Invalid, Param: "model", Message: adapter.Error()}
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
