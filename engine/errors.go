package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The errors that callers of Submit and Stream.Next distinguish.
var (
	// ErrOverloaded: the waiting queue is full.
	ErrOverloaded = errors.New("the request queue is full")
	// ErrClosed: the engine is draining or closed.
	ErrClosed = errors.New("the engine is shutting down")
	// ErrDead: the engine's loop failed; it takes no more requests.
	ErrDead = errors.New("the engine has failed")
	// ErrNotNumbers: a model's hidden states contained NaN or infinities.
	ErrNotNumbers = errors.New("the model's hidden states are not numbers")
	// ErrNoToken: all logits of a row were NaN or −Inf.
	ErrNoToken = errors.New("the model gave no token: its logits are not numbers")
	// ErrGrammar: a grammar became too complex while a reply followed it.
	ErrGrammar = errors.New("the reply cannot follow its grammar to the end")
)

// TooLongError refuses a request that exceeds the model length or the KV arena.
type TooLongError struct {
	Prompt int // tokens
	Output int // requested tokens
	Limit  int // tokens: the model length, or the capacity of the KV arena
	What   string
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("the request needs %d tokens (%d prompt + %d output) but %s is %d tokens", e.Prompt+e.Output, e.Prompt, e.Output, e.What, e.Limit)
}

// ConflictError refuses a request, or ends a reply, whose constraints together forbid every token.
type ConflictError struct {
	Grammar  bool     // Request.Grammar is one of the constraints
	Thinking bool     // the end markers that Request.Thinking forces are one of the constraints
	Params   []string // names of the parameters that are constraints
	Output   int      // tokens generated before
}

func (e *ConflictError) Error() string {
	by := slices.Clone(e.Params)
	if e.Thinking {
		by = append(by, "the end of the thought")
	}
	if e.Grammar {
		by = append(by, "the grammar")
	}
	return fmt.Sprintf("every token is forbidden after %d tokens of the reply, by %s", e.Output, strings.Join(by, " and "))
}
