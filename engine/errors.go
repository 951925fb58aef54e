package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The sentinels that callers of Submit and Stream.Next tell apart.
var (
	// ErrOverloaded: the waiting queue is full.
	ErrOverloaded = errors.New("the request queue is full")
	// ErrClosed: the engine is draining or closed.
	ErrClosed = errors.New("the engine is shutting down")
	// ErrDead: the engine's loop failed; it takes no more requests.
	ErrDead = errors.New("the engine has failed")
	// ErrNotNumbers: a model's hidden states held NaN or infinities.
	ErrNotNumbers = errors.New("the model's hidden states are not numbers")
	// ErrNoToken: a step's logits held no usable number.
	ErrNoToken = errors.New("the model gave no token: its logits are not numbers")
	// ErrGrammar: a grammar turned out too complex while it was followed.
	ErrGrammar = errors.New("the reply cannot follow its grammar to the end")
)

// TooLongError refuses a request that can never fit; its numbers say why.
type TooLongError struct {
	Prompt int // tokens
	Output int // tokens asked for
	Limit  int // tokens: the model length, or what the KV arena holds
	What   string
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("the request needs %d tokens (%d prompt + %d output) but %s is %d tokens", e.Prompt+e.Output, e.Prompt, e.Output, e.What, e.Limit)
}

// ConflictError ends or refuses a reply whose request forbids every token.
type ConflictError struct {
	Grammar  bool     // what Request.Grammar allows is among the constraints
	Thinking bool     // the end of a thought that Request.Thinking cuts is
	Params   []string // the parameters that are, by name
	Output   int      // tokens that came before
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
