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

// structure compiles what the replies of a run must be; nil: nothing is asked. whole
// reports that the grammar is of the whole reply, reasoning included.
func (s *Service) structure(ctx context.Context, r *Request, run *Run) (g *grammar.Grammar, whole bool, err error) {
	want, whole, err := s.wanted(r, run)
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
		return nil, false, invalid(want.Param, "Grammar error: %s.", refused.Text)
	case errors.Is(err, grammar.ErrBusy):
		return nil, false, &Error{Kind: Overloaded, Param: want.Param, Message: "The grammar of `" + want.Param + "` could not be compiled: " + err.Error() + "."}
	case errors.As(err, &lib) && lib.Kind == tokenizer.KindUnavailable:
		return nil, false, &Error{Kind: Unavailable, Param: want.Param, Message: "The grammar of `" + want.Param + "` cannot be compiled now. Please try again later.", Cause: err}
	case errors.As(err, &lib):
		return nil, false, &Error{Kind: Unsupported, Param: want.Param, Message: "Structured outputs are not available for this model: " + lib.Msg + "."}
	}
	return g, whole, err
}

// wanted returns what the replies of a run must be: what tool_choice asks for, or the
// request's own structure, or calls that follow the schemas of strict functions.
func (s *Service) wanted(r *Request, run *Run) (want *Structure, whole bool, err error) {
	a, set := &r.ask, r.settings
	var list []function
	if a.Chat != nil && set.Tools != "" {
		list = a.functions()
	}
	switch must := a.ToolChoice == dialect.Named || a.ToolChoice == dialect.Required; {
	case inHarmony(r, run):
		want, err = s.harmonyStructure(r, &run.Prompts[0], list)
		return want, want != nil, err
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
		want, err = s.calls(set, list)
		return want, false, err
	}
	return nil, false, nil
}

// calls returns the structure of replies with calls in a dialect's own form.
func (s *Service) calls(set *Settings, list []function) (*Structure, error) {
	f := callFormat(set, list, s.special)
	if f == nil {
		return nil, nil
	}
	source, err := tagGrammar(f, s.special)
	if err != nil {
		return nil, invalid("tools", "The parameters of a function: %v.", err)
	}
	return &Structure{AsGrammar, source, "tools"}, nil
}

// lead returns the part of a reply to a chat that its structure does not cover: the
// reasoning.
func (s *Service) lead(r *Request, run *Run, p *Prompted) grammar.Preamble {
	a, set := &r.ask, r.settings
	o := dialect.Options{Reasoning: set.Reasoning, Tools: set.Tools, Prompt: s.textOf(p)}
	switch {
	case run.whole, a.Chat == nil && !a.Rendered, a.Chat != nil && run.Role != "assistant":
		return grammar.Preamble{}
	case a.Chat != nil:
		o.Kwargs = a.Chat.kwargs(set)
	}
	t := dialect.Before(o)
	return grammar.Preamble{Inside: t.Inside, Open: t.Open, Ends: t.Ends}
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
	var out []function
	for _, raw := range a.Chat.AllTools() {
		var t struct {
			Function function `json:"function"`
		}
		if json.Unmarshal(raw, &t) == nil {
			out = append(out, t.Function)
		}
	}
	return out
}

// parameters returns the schema of the arguments. Without one, or with {}, they are an
// empty object.
func (f function) parameters() json.RawMessage {
	if dialect.NoParameters(f.Parameters) {
		return json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
	}
	return f.Parameters
}
