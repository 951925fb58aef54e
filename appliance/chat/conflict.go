package chat

import (
	"errors"
	"fmt"
	"strings"

	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/engine"
	"vapp.dev/engine/grammar"
)

// requestError returns an engine error that the request caused with a Kind and the names of
// the request's fields. It returns other errors unchanged.
func (a *RequestParams) requestError(err error) error {
	var c *engine.ConflictError
	switch {
	case errors.As(err, &c):
		return a.conflict(c)
	case errors.Is(err, grammar.ErrBusy):
		return &Error{Kind: Overloaded, Param: a.grammarField(), Message: "`" + a.grammarField() + "`: " + grammar.ErrBusy.Error() + ". Please try again later."}
	case errors.Is(err, engine.ErrGrammar):
		return invalid(a.grammarField(), "`%s`: %v.", a.grammarField(), err)
	}
	return err
}

// conflict returns the error for parameters that leave no token to sample.
func (a *RequestParams) conflict(c *engine.ConflictError) *Error {
	var names []string
	if c.Grammar {
		names = append(names, a.grammarField())
	}
	if c.Thinking {
		names = append(names, "thinking_token_budget")
	}
	names = append(names, c.Params...)
	param := names[0]
	if len(c.Params) > 0 {
		param = c.Params[0]
	}
	where := "to begin the reply with"
	if c.Output > 0 {
		where = fmt.Sprintf("after the first %d tokens of the reply", c.Output)
	}
	list := "`" + strings.Join(names, "`, `") + "`"
	if len(names) == 1 {
		return invalid(param, "%s leaves no token %s: change it.", list, where)
	}
	return invalid(param, "%s together leave no token %s: change one of them.", list, where)
}

// grammarField returns the field that requested the grammar of the replies.
func (a *RequestParams) grammarField() string {
	switch {
	case a.Chat != nil && len(a.Chat.Tools) > 0 && (a.ToolChoice == dialect.Required || a.ToolChoice == dialect.Named):
		return "tool_choice"
	case a.Structure != nil:
		return a.Structure.Param
	}
	return "tools"
}
