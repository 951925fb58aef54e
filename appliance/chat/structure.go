package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// must is what the replies of a request must be; nil: anything.
func (a *Ask) must() (*Structure, error) {
	forced, err := a.forced()
	if forced == nil {
		forced = a.Structure
	}
	return forced, err
}

// structure compiles what the replies of a request must be; nil: nothing is asked.
func (s *Service) structure(ctx context.Context, r *Request) (*grammar.Grammar, error) {
	want, err := r.ask.must()
	if err != nil || want == nil {
		return nil, err
	}
	if s.cfg.Grammars == nil {
		return nil, Errorf(Unsupported, want.Param, "Structured outputs are not available in this deployment.")
	}
	g, err := s.cfg.Grammars.Compile(ctx, grammar.Spec{Kind: want.Kind, Source: want.Source})
	var refused *grammar.Error
	var lib *tokenizer.Error
	switch {
	case errors.As(err, &refused):
		return nil, invalid(want.Param, "The grammar of `%s` cannot be used: %s.", want.Param, refused.Error())
	case errors.As(err, &lib):
		return nil, &Error{Kind: Unsupported, Param: want.Param, Message: "Structured outputs are not available for this model: " + lib.Msg + "."}
	}
	return g, err
}

// lead is the part of a chat's reply that its structure says nothing about: the
// reasoning.
func (s *Service) lead(r *Request, run *Run, p *Prompted) grammar.Lead {
	a, set := &r.ask, r.settings
	if a.Rendered {
		return s.renderedLead(r, p)
	}
	if a.Chat == nil || run.Role != "assistant" {
		return grammar.Lead{}
	}
	t := dialect.Before(dialect.Options{Reasoning: set.Reasoning, Tools: set.Tools, Prompt: p.text, Kwargs: a.Chat.kwargs(set)})
	return grammar.Lead{Inside: t.Inside, Open: t.Open, Ends: t.Ends}
}

// forced is the structure that tool_choice asks for: the arguments of the function that
// is named, or a list of calls, at least one, each {"name": …, "parameters": …}.
func (a *Ask) forced() (*Structure, error) {
	if a.Chat == nil || len(a.Chat.Tools) == 0 {
		return nil, nil
	}
	if a.ToolChoice != dialect.Named && a.ToolChoice != dialect.Required {
		return nil, nil
	}
	var names, rules []string
	for i, f := range a.functions() {
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
