package chat

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/appliance/chat/structured"
	"vapp.dev/engine/grammar"
	"vapp.dev/engine/tokenizer"
)

// Grammars compiles grammars; grammar.Compiler is one.
type Grammars interface {
	// Compile refuses what it cannot do with a *grammar.Error.
	Compile(context.Context, grammar.Spec) (*grammar.Grammar, error)
}

// checkStructure refuses a request with both a structure and a named function: a reply can
// follow only one of them.
func checkStructure(a *RequestParams, _ *Settings) error {
	if a.Structure != nil && a.ToolChoice == dialect.Named {
		return invalid(a.Structure.Param, "You can only either use constraints for structured outputs or tools, not both.")
	}
	return nil
}

// compileGrammar compiles the constraint of a run's replies; nil: they are unconstrained.
// whole reports that the grammar covers the whole reply, reasoning included.
func (s *Service) compileGrammar(ctx context.Context, r *Request, run *Run) (g *grammar.Grammar, whole bool, err error) {
	want, whole, err := s.constraint(r, run)
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

// constraint returns the constraint of a run's replies: that of tool_choice, or the
// request's own structure, or calls that follow the schemas of strict functions; nil: none.
// whole reports that it covers the whole reply, reasoning included.
func (s *Service) constraint(r *Request, run *Run) (want *structured.Constraint, whole bool, err error) {
	a, set := &r.params, r.settings
	var list []structured.Function
	if a.Chat != nil && set.Tools != "" {
		list = structured.Functions(a.Chat.AllTools())
	}
	switch must := a.ToolChoice == dialect.Named || a.ToolChoice == dialect.Required; {
	case usesHarmony(r, run):
		want, err = s.harmonyConstraint(r, &run.Prompts[0], list)
		return want, want != nil, err
	case len(list) > 0 && must:
		want, err = a.forcedCalls(list)
		return want, false, err
	case a.Structure != nil && a.Structure.Kind == structured.StructuralTag:
		source, err := structured.TagSource(json.RawMessage(a.Structure.Source), s.special)
		if err != nil {
			return nil, false, invalid(a.Structure.Param, "`%s`: %v.", a.Structure.Param, err)
		}
		return &structured.Constraint{Kind: structured.Lark, Source: source, Param: a.Structure.Param}, false, nil
	case a.Structure != nil:
		return a.Structure, false, nil
	case a.ToolChoice == dialect.Auto && slices.ContainsFunc(list, func(f structured.Function) bool { return f.Strict }):
		want, err = s.strictCalls(set, list)
		return want, false, err
	}
	return nil, false, nil
}

// strictCalls returns the constraint of replies whose calls, in the dialect's own form,
// follow the functions' schemas; nil if the dialect has no grammar.
func (s *Service) strictCalls(set *Settings, list []structured.Function) (*structured.Constraint, error) {
	source, err := structured.DialectCalls(set.Tools, list, s.special)
	if err != nil {
		return nil, invalid("tools", "The parameters of a function: %v.", err)
	}
	if source == "" {
		return nil, nil
	}
	return &structured.Constraint{Kind: structured.Lark, Source: source, Param: "tools"}, nil
}

// lead returns the part of a reply to a chat that its grammar does not cover: the
// reasoning.
func (s *Service) lead(r *Request, run *Run, p *EncodedPrompt) grammar.Preamble {
	a, set := &r.params, r.settings
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

// forcedCalls returns the constraint of a tool_choice that requires calls: the arguments of
// the named function, or a list of at least one call.
func (a *RequestParams) forcedCalls(list []structured.Function) (want *structured.Constraint, err error) {
	most := structured.MaxCalls
	if a.OneCall {
		most = 1
	}
	if a.ToolChoice == dialect.Named {
		list = slices.DeleteFunc(list, func(f structured.Function) bool { return f.Name != a.ToolName })
	}
	if a.ToolChoice == dialect.Named && len(list) > 0 {
		want, err = structured.NamedCall(list[0])
	} else {
		want, err = structured.RequiredCalls(list, most)
	}
	if err != nil {
		return nil, invalid("tools", "The parameters %v.", err)
	}
	return want, nil
}

// usesHarmony reports whether the reply is an assistant's message in harmony.
func usesHarmony(r *Request, run *Run) bool {
	a := &r.params
	return dialect.Harmony(r.settings.Reasoning, r.settings.Tools) && (a.Rendered || a.Chat != nil && run.Role == "assistant")
}

// harmonyConstraint returns the constraint of a whole reply to p in harmony; nil if the
// request asks for none.
func (s *Service) harmonyConstraint(r *Request, p *EncodedPrompt, list []structured.Function) (*structured.Constraint, error) {
	a := &r.params
	h, param := &structured.HarmonyReply{MaxCalls: structured.MaxCalls}, "tools"
	if a.OneCall {
		h.MaxCalls = 1
	}
	switch {
	case len(list) > 0 && a.ToolChoice == dialect.Required:
		h.NoFinal, h.Calls = true, structured.Strictly(list)
	case len(list) > 0 && a.ToolChoice == dialect.Named:
		named := slices.DeleteFunc(list, func(f structured.Function) bool { return f.Name != a.ToolName })
		h.NoFinal, h.Calls, h.MaxCalls = true, structured.Strictly(named), 1
	case a.Structure != nil:
		h.Final, param = a.Structure, a.Structure.Param
		if a.ToolChoice == dialect.Auto {
			h.Calls = list
		}
	case a.ToolChoice == dialect.Auto && slices.ContainsFunc(list, func(f structured.Function) bool { return f.Strict }):
		h.Preamble, h.Calls = true, list
	default:
		return nil, nil
	}
	source, err := h.Source(s.special, dialect.OpenHarmony(s.textOf(p)))
	if err != nil {
		return nil, invalid(param, "The grammar of `%s` cannot be used: %v.", param, err)
	}
	return &structured.Constraint{Kind: structured.Lark, Source: source, Param: param}, nil
}
