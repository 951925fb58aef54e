package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/engine/grammar"
	"vapp.dev/engine/tokenizer"
)

// Structure is what a reply must be.
type Structure struct {
	Kind   string // one of the kinds of grammar.Spec
	Source string
	Param  string // the field that asked for it
}

// Grammars compiles grammars; grammar.Compiler is one.
type Grammars interface {
	// Compile refuses what it cannot do with a *grammar.Error.
	Compile(context.Context, grammar.Spec) (*grammar.Grammar, error)
}

// checkStructure: a reply follows one thing.
func checkStructure(a *Ask, _ *Settings) error {
	if a.Structure != nil && a.ToolChoice == dialect.Named {
		return invalid(a.Structure.Param, "You can only either use constraints for structured outputs or tools, not both.")
	}
	return nil
}

// structure compiles what the replies of a request must be; nil: nothing is asked. whole
// says that it is of the whole reply, reasoning included.
func (s *Service) structure(ctx context.Context, r *Request) (g *grammar.Grammar, whole bool, err error) {
	want, whole, err := s.wanted(r)
	if err != nil || want == nil {
		return nil, false, err
	}
	if s.cfg.Grammars == nil {
		return nil, false, Errorf(Unsupported, want.Param, "Structured outputs are not available in this deployment.")
	}
	g, err = s.cfg.Grammars.Compile(ctx, grammar.Spec{Kind: want.Kind, Source: want.Source})
	var refused *grammar.Error
	var lib *tokenizer.Error
	switch {
	case errors.As(err, &refused):
		return nil, false, invalid(want.Param, "The grammar of `%s` cannot be used: %s.", want.Param, refused.Error())
	case errors.Is(err, grammar.ErrBusy):
		return nil, false, &Error{Kind: Overloaded, Param: want.Param, Message: "The grammar of `" + want.Param + "` could not be compiled: " + err.Error() + "."}
	case errors.As(err, &lib):
		return nil, false, &Error{Kind: Unsupported, Param: want.Param, Message: "Structured outputs are not available for this model: " + lib.Msg + "."}
	}
	return g, whole, err
}

// wanted is what the replies of a request must be: what tool_choice asks for, or the
// request's own structure, or calls that follow the schemas of strict functions.
func (s *Service) wanted(r *Request) (want *Structure, whole bool, err error) {
	a, set := &r.ask, r.settings
	var list []function
	if a.Chat != nil && set.Tools != "" {
		list = a.functions()
	}
	harmony := dialect.Harmony(set.Reasoning, set.Tools)
	switch must := a.ToolChoice == dialect.Named || a.ToolChoice == dialect.Required; {
	case len(list) > 0 && must && harmony:
		if a.ToolChoice == dialect.Named {
			list = slices.DeleteFunc(list, func(f function) bool { return f.Name != a.ToolName })
		}
		want, err = s.calls(set, list, must)
		return want, true, err
	case len(list) > 0 && must:
		want, err = a.forced(list)
		return want, false, err
	case a.Structure != nil && a.Structure.Kind == AsTag:
		source, err := TagSource(json.RawMessage(a.Structure.Source), s.special)
		if err != nil {
			return nil, false, invalid(a.Structure.Param, "`%s`: %v.", a.Structure.Param, err)
		}
		return &Structure{AsGrammar, source, a.Structure.Param}, false, nil
	case a.Structure != nil:
		return a.Structure, false, nil
	case a.ToolChoice == dialect.Auto && slices.ContainsFunc(list, func(f function) bool { return f.Strict }):
		want, err = s.calls(set, list, false)
		return want, harmony, err
	}
	return nil, false, nil
}

// calls is the structure of replies with calls in a dialect's own form.
func (s *Service) calls(set *Settings, list []function, must bool) (*Structure, error) {
	f := callFormat(set, list, must, s.special)
	if f == nil {
		return nil, nil
	}
	source, err := tagGrammar(f, s.special)
	if err != nil {
		return nil, invalid("tools", "The parameters of a function: %v.", err)
	}
	return &Structure{AsGrammar, source, "tools"}, nil
}

// lead is the part of a chat's reply that its structure says nothing about: the
// reasoning.
func (s *Service) lead(r *Request, run *Run, p *Prompted) grammar.Lead {
	a, set := &r.ask, r.settings
	if a.Rendered {
		return s.renderedLead(r, p)
	}
	if a.Chat == nil || run.Role != "assistant" || run.whole {
		return grammar.Lead{}
	}
	t := dialect.Before(dialect.Options{Reasoning: set.Reasoning, Tools: set.Tools, Prompt: p.text, Kwargs: a.Chat.kwargs(set)})
	return grammar.Lead{Inside: t.Inside, Open: t.Open, Ends: t.Ends}
}

// forced is the structure that tool_choice asks for: the arguments of the function that
// is named, or a list of calls, at least one, each {"name": …, "parameters": …}.
func (a *Ask) forced(list []function) (*Structure, error) {
	var names, rules []string
	for i, f := range list {
		if a.ToolChoice == dialect.Named && f.Name != a.ToolName {
			continue
		}
		schema, err := SchemaSource(f.parameters(), SchemaOptions{})
		if err != nil {
			return nil, invalid("tools", "The parameters of the function %q: %v.", f.Name, err)
		}
		if a.ToolChoice == dialect.Named {
			return &Structure{Kind: AsSchema, Source: schema, Param: "tools"}, nil
		}
		names = append(names, fmt.Sprintf("c%d", i))
		rules = append(rules, fmt.Sprintf("c%d: %s p%d \"}\"\np%d: %%json %s\n", i, text(`{"name": `+text(f.Name)+`, "parameters": `), i, i, schema))
	}
	more := fmt.Sprintf(` ("," " "? call){0,%d}`, maxCalls-1)
	if a.OneCall {
		more = ""
	}
	source := fmt.Sprintf("start: \"[\" call%s \"]\"\ncall: %s\n%s", more, strings.Join(names, " | "), strings.Join(rules, ""))
	return &Structure{Kind: AsGrammar, Source: source, Param: "tools"}, nil
}

// maxCalls bounds the list of calls: a model that does not stop is stopped.
const maxCalls = 64

// function is a tool as a request declares it.
type function struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters"`
	Strict     bool            `json:"strict"`
}

func (a *Ask) functions() []function {
	out := make([]function, 0, len(a.Chat.Tools))
	for _, raw := range a.Chat.Tools {
		var t struct {
			Function function `json:"function"`
		}
		if json.Unmarshal(raw, &t) == nil {
			out = append(out, t.Function)
		}
	}
	return out
}

// parameters is the schema of the arguments; without one they are an empty object.
func (f function) parameters() json.RawMessage {
	if len(f.Parameters) == 0 || string(f.Parameters) == "null" {
		return json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
	}
	return f.Parameters
}
