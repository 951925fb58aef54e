package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"vapp.dev/engine/tokenizer"
)

// The kinds of a Structure.
const (
	AsSchema  = tokenizer.GrammarJSONSchema // a JSON schema, by SchemaSource
	AsObject  = tokenizer.GrammarJSONObject // any JSON object; no source
	AsRegex   = tokenizer.GrammarRegex
	AsChoice  = tokenizer.GrammarChoice // a JSON list of texts
	AsGrammar = tokenizer.GrammarLark
	AsTag     = "structural_tag" // its JSON; TagSource makes an AsGrammar of it
)

// SchemaOptions are how JSON is written by a schema.
type SchemaOptions struct {
	NoWhitespace bool   // none between tokens but what JSON needs
	Whitespace   string // a regular expression of what may lie between tokens; "": a line end and some spaces
	Closed       bool   // objects have the properties that are named alone
}

// gap is the white space that may lie between the tokens of JSON. It is bounded, since small
// models would write it for ever.
const gap = `\n?[ \t]{0,24}`

// SchemaSource is the source of an AsSchema: the schema with the options in it.
func SchemaSource(schema json.RawMessage, o SchemaOptions) (string, error) {
	schema = bytes.TrimSpace(schema)
	if string(schema) == "true" {
		schema = json.RawMessage("{}")
	}
	if len(schema) == 0 || schema[0] != '{' {
		return "", fmt.Errorf("a JSON schema is an object, got %.40s", schema)
	}
	if o.Closed {
		var err error
		if schema, err = closed(schema, false); err != nil {
			return "", err
		}
	}
	guidance := map[string]any{"whitespace_pattern": gap}
	switch {
	case o.NoWhitespace:
		guidance = map[string]any{"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "}
	case o.Whitespace != "":
		guidance["whitespace_pattern"] = o.Whitespace
	}
	head, err := json.Marshal(guidance)
	if err != nil {
		return "", err
	}
	rest := bytes.TrimSpace(schema[1:])
	comma := ","
	if len(rest) > 0 && rest[0] == '}' {
		comma = ""
	}
	return fmt.Sprintf(`{"x-guidance":%s%s%s`, head, comma, rest), nil
}

// member is a key of an object, in the order of the text.
type member struct {
	key   string
	value json.RawMessage
}

func members(object json.RawMessage) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	var out []member
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{}
		m.key, _ = key.(string)
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// named are the keywords whose values are schemas by name.
var named = []string{"properties", "patternProperties", "$defs", "definitions"}

// literal are those whose values are no schemas.
var literal = []string{"enum", "const", "default", "examples"}

// closed writes additionalProperties false into every schema that names properties and
// says nothing else of it. byName: the object is a map of schemas.
func closed(v json.RawMessage, byName bool) (json.RawMessage, error) {
	switch v = bytes.TrimSpace(v); {
	case len(v) > 0 && v[0] == '[':
		var list []json.RawMessage
		if err := json.Unmarshal(v, &list); err != nil {
			return nil, err
		}
		for i := range list {
			var err error
			if list[i], err = closed(list[i], false); err != nil {
				return nil, err
			}
		}
		return json.Marshal(list)
	case len(v) == 0 || v[0] != '{':
		return v, nil
	}
	list, err := members(v)
	if err != nil {
		return nil, err
	}
	var parts []string
	names, says := false, false
	for _, m := range list {
		names = names || m.key == "properties"
		says = says || m.key == "additionalProperties" || m.key == "unevaluatedProperties"
		if byName || !slices.Contains(literal, m.key) {
			if m.value, err = closed(m.value, !byName && slices.Contains(named, m.key)); err != nil {
				return nil, err
			}
		}
		key, err := json.Marshal(m.key)
		if err != nil {
			return nil, err
		}
		parts = append(parts, string(key)+":"+string(m.value))
	}
	if !byName && names && !says {
		parts = append(parts, `"additionalProperties":false`)
	}
	return json.RawMessage("{" + strings.Join(parts, ",") + "}"), nil
}
