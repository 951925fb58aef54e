// Package structured turns the structured-output fields of a request (a JSON
// schema, a regular expression, a list of choices, a grammar in Lark or EBNF, a
// structural tag) and its tools into a grammar that the grammar compiler of the
// engine accepts. It must not import package chat or know requests, runs and
// tokenizers: callers pass the fields and the ids of the dialects' markers.
// Start reading at Constraint in structured.go, then TagSource in tag.go.
package structured

import (
	"encoding/json"
	"fmt"
	"strings"

	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/engine/tokenizer"
)

// The kinds of a Constraint.
const (
	JSONSchema    = tokenizer.GrammarJSONSchema // Source is a JSON schema, written by SchemaSource
	JSONObject    = tokenizer.GrammarJSONObject // any JSON object; Source is empty
	Regex         = tokenizer.GrammarRegex
	Choice        = tokenizer.GrammarChoice // Source is a JSON list of strings
	Lark          = tokenizer.GrammarLark
	StructuralTag = "structural_tag" // Source is the tag's JSON; TagSource turns it into Lark
)

// Constraint is the form that a reply must have.
type Constraint struct {
	Kind   string // one of the kinds above
	Source string
	Param  string // the request field that asked for it
}

// MaxCalls bounds the tool calls of one constrained reply, so that a model that
// never stops calling is stopped.
const MaxCalls = 64

// Function is a tool as a request declares it.
type Function struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters"`
	Strict     bool            `json:"strict"`
}

// Functions returns the functions of a list of tools; tools of other types are
// left out.
func Functions(tools []json.RawMessage) []Function {
	var out []Function
	for _, raw := range tools {
		var t struct {
			Function Function `json:"function"`
		}
		if json.Unmarshal(raw, &t) == nil {
			out = append(out, t.Function)
		}
	}
	return out
}

// parameters returns the schema of the arguments. A function without parameters,
// or with {}, takes an empty object.
func (f Function) parameters() json.RawMessage {
	if dialect.NoParameters(f.Parameters) {
		return json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
	}
	return f.Parameters
}

// arguments returns the schema that the arguments of a call follow: the
// function's own if it is strict, otherwise that of any object.
func (f Function) arguments() json.RawMessage {
	if f.Strict {
		return f.parameters()
	}
	return json.RawMessage(`{"type":"object"}`)
}

// NamedCall returns the constraint of a reply under a tool_choice that names f:
// the function's arguments alone.
func NamedCall(f Function) (*Constraint, error) {
	schema, err := SchemaSource(f.parameters(), SchemaOptions{})
	if err != nil {
		return nil, fmt.Errorf("of the function %q: %w", f.Name, err)
	}
	return &Constraint{Kind: JSONSchema, Source: schema, Param: "tools"}, nil
}

// RequiredCalls returns the constraint of a reply under tool_choice "required": a
// JSON list of 1 to most calls, each {"name": …, "parameters": …}.
func RequiredCalls(list []Function, most int) (*Constraint, error) {
	var names, rules []string
	for i, f := range list {
		schema, err := SchemaSource(f.parameters(), SchemaOptions{})
		if err != nil {
			return nil, fmt.Errorf("of the function %q: %w", f.Name, err)
		}
		names = append(names, fmt.Sprintf("c%d", i))
		rules = append(rules, fmt.Sprintf("c%d: %s p%d \"}\"\np%d: %%json %s\n", i, larkString(`{"name": `+larkString(f.Name)+`, "parameters": `), i, i, schema))
	}
	more := ""
	if most > 1 {
		more = fmt.Sprintf(` ("," " "? call){0,%d}`, most-1)
	}
	source := fmt.Sprintf("start: \"[\" call%s \"]\"\ncall: %s\n%s", more, strings.Join(names, " | "), strings.Join(rules, ""))
	return &Constraint{Kind: Lark, Source: source, Param: "tools"}, nil
}
