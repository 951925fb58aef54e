package openai

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"vapp.dev/appliance/api/rawjson"
	"vapp.dev/appliance/chat/structured"
)

// constraints lists the fields of structured_outputs that constrain the reply.
var constraints = []string{"json", "regex", "choice", "grammar", "json_object", "structural_tag"}

// structure reads the constraint of the reply from response_format, structured_outputs,
// or the fields of old releases (guided_json, …); nil: no constraint.
func structure(f *fields, w *Wire) *structured.Constraint {
	return only(f, slices.Concat([]*structured.Constraint{responseFormat(f)}, outputs(f), []*structured.Constraint{guided(f, w)}))
}

// outputs reads structured_outputs. It returns an element for each kind, nil if absent.
func outputs(f *fields) []*structured.Constraint {
	var list []*structured.Constraint
	if raw := f.object("structured_outputs"); raw != nil {
		o := newFields("structured_outputs.", raw)
		opts := schemaOptions(o, "")
		for _, kind := range constraints {
			list = append(list, constraint(o, kind, kind, opts))
		}
		if f.failIf(o.err); f.err == nil && !slices.ContainsFunc(list, isSet) {
			f.fail(malformed("structured_outputs", "You must use one kind of structured outputs constraint but none are specified: json, regex, choice, grammar, json_object or structural_tag."))
		}
	}
	return list
}

// guided reads the fields of old releases.
func guided(f *fields, w *Wire) *structured.Constraint {
	var list []*structured.Constraint
	opts := schemaOptions(f, "guided_")
	for _, kind := range constraints {
		s := constraint(f, "guided_"+kind, kind, opts)
		if s != nil {
			w.Deprecated = append(w.Deprecated, "guided_"+kind)
		}
		list = append(list, s)
	}
	f.seen["guided_decoding_backend"] = true
	return only(f, list)
}

// only returns the single constraint that is set, nil for none.
func only(f *fields, list []*structured.Constraint) *structured.Constraint {
	list = slices.DeleteFunc(list, func(s *structured.Constraint) bool { return !isSet(s) })
	switch {
	case f.err != nil || len(list) == 0:
		return nil
	case len(list) > 1 && basic(list[0]) && basic(list[1]):
		f.fail(malformed(list[1].Param, "You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice')."))
		return nil
	case len(list) > 1:
		f.fail(malformed(list[1].Param, "You can only use one kind of structured outputs constraint but multiple are specified: `%s` and `%s`.", list[0].Param, list[1].Param))
		return nil
	}
	return list[0]
}

func isSet(s *structured.Constraint) bool { return s != nil }

// basic reports whether s is json, regex or choice of structured_outputs. For these,
// vLLM has another error message.
func basic(s *structured.Constraint) bool {
	name, is := strings.CutPrefix(s.Param, "structured_outputs.")
	return is && slices.Contains(constraints[:3], name)
}

func schemaOptions(f *fields, prefix string) structured.SchemaOptions {
	return structured.SchemaOptions{
		NoWhitespace: f.flag(prefix+"disable_any_whitespace", false),
		Closed:       f.flag(prefix+"disable_additional_properties", false),
		Whitespace:   f.str(prefix + "whitespace_pattern"),
	}
}

// constraint reads one field of the given kind; nil when it is absent.
func constraint(f *fields, name, kind string, o structured.SchemaOptions) *structured.Constraint {
	raw, ok := f.get(name)
	if !ok {
		return nil
	}
	at := f.at + name
	out := &structured.Constraint{Param: at}
	switch kind {
	case "json":
		out.Kind = structured.JSONSchema
		out.Source = schemaText(f, at, raw, o)
	case "json_object":
		if !f.flag(name, false) {
			if f.at != "" {
				f.fail(malformed(at, "%s must be True if set; omit structured_outputs to disable structured outputs", at))
			}
			return nil
		}
		out.Kind = structured.JSONSchema
		out.Source = schemaText(f, at, json.RawMessage(`{"type":"object"}`), o)
	case "regex":
		out.Kind, out.Source = structured.Regex, nonBlank(f, name)
	case "grammar":
		var err error
		out.Kind = structured.Lark
		if out.Source, err = structured.GrammarSource(nonBlank(f, name)); err != nil {
			f.fail(malformed(at, "Invalid grammar specification: %v.", err))
		}
	case "choice":
		out.Kind, out.Source = structured.Choice, choices(f, name)
	case "structural_tag":
		out.Kind = structured.StructuralTag
		out.Source = tagText(f, at, raw)
	}
	return out
}

// nonBlank reads a string that must not be blank.
func nonBlank(f *fields, name string) string {
	s := f.str(name)
	if strings.TrimSpace(s) == "" && f.err == nil {
		f.fail(malformed(f.at+name, "%s cannot be an empty string", f.at+name))
	}
	return s
}

// choices returns the texts of a list without duplicates, which would cost compile time.
func choices(f *fields, name string) string {
	seen := map[string]bool{}
	list := slices.DeleteFunc(f.strings(name), func(s string) bool {
		again := seen[s]
		seen[s] = true
		return again
	})
	if len(list) == 0 && f.err == nil {
		f.fail(malformed(f.at+name, "Choice '[]' cannot be an empty list"))
	}
	b, _ := json.Marshal(list) // strings
	return string(b)
}

// schemaText returns a schema that is an object, or a string that contains one.
func schemaText(f *fields, at string, raw json.RawMessage, o structured.SchemaOptions) string {
	raw = bytes.TrimSpace(unquote(raw))
	if len(raw) == 0 {
		f.fail(malformed(at, "%s cannot be an empty string", at))
		return ""
	}
	if !json.Valid(raw) {
		f.fail(malformed(at, "Invalid JSON grammar specification. `%s` must be a JSON schema, or a string that holds one.", at))
		return ""
	}
	if bad := checkSize(raw); bad != nil {
		f.fail(malformed(at, "`%s` nests deeper than %d levels or holds more than %d values.", at, rawjson.MaxDepth, rawjson.MaxValues))
		return ""
	}
	out, err := structured.SchemaSource(raw, o)
	if err != nil {
		f.fail(malformed(at, "`%s`: %v.", at, err))
	}
	return out
}

// unquote returns the content of a JSON string; raw itself if it is not a string.
func unquote(raw json.RawMessage) json.RawMessage {
	var text string
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		return json.RawMessage(text)
	}
	return raw
}

func responseFormat(f *fields) *structured.Constraint {
	raw := f.object("response_format")
	if raw == nil {
		return nil
	}
	o := newFields("response_format.", raw)
	out := &structured.Constraint{Param: "response_format"}
	switch kind := o.str("type"); {
	case o.err != nil:
		f.fail(o.err)
		return nil
	case kind == "text":
		return nil
	case kind == "json_object":
		out.Kind = structured.JSONSchema
		out.Source = schemaText(f, out.Param, json.RawMessage(`{"type":"object"}`), structured.SchemaOptions{})
	case kind == "json_schema" && !o.has("json_schema"):
		f.fail(malformed("response_format", "When response_format type is 'json_schema', the 'json_schema' field must be provided."))
		return nil
	case kind == "json_schema":
		s := newFields("response_format.json_schema.", o.object("json_schema"))
		schema, ok := s.get("schema")
		if f.failIf(o.err); !ok && f.err == nil {
			f.fail(malformed("response_format.json_schema.schema", "Field required: `response_format.json_schema.schema`."))
			return nil
		}
		out.Kind, out.Source = structured.JSONSchema, schemaText(f, "response_format.json_schema.schema", schema, structured.SchemaOptions{})
	case kind == "structural_tag":
		whole, _ := f.get("response_format")
		out.Kind, out.Source = structured.StructuralTag, tagText(f, out.Param, whole)
	default:
		f.fail(malformed("response_format.type", "`response_format.type` must be text, json_object, json_schema or structural_tag, got %q.", kind))
	}
	return out
}

// tagText checks a structural tag and returns its text. Its grammar depends on the
// model, so that it is compiled later.
func tagText(f *fields, at string, raw json.RawMessage) string {
	raw = unquote(raw)
	if _, err := structured.TagSource(raw, nil); err != nil {
		of, _, _ := strings.Cut(at, ".")
		f.fail(malformed(at, "Invalid %s structural_tag specification. `%s`: %v.", of, at, err))
	}
	return string(raw)
}
