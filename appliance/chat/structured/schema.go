package structured

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// SchemaOptions sets how JSON that follows a schema is written.
type SchemaOptions struct {
	NoWhitespace bool   // no white space between JSON tokens but ", " and ": "
	Whitespace   string // regular expression of the white space between JSON tokens; "": jsonGap
	Closed       bool   // objects have only the properties that the schema names
}

// jsonGap is the default white space between JSON tokens: an optional line end and up to
// 24 spaces or tabs. It is bounded because small models can emit white space forever.
const jsonGap = `\n?[ \t]{0,24}`

// SchemaSource returns the Source of a JSONSchema constraint: the schema with the options
// as its "x-guidance" key.
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
	guidance := map[string]any{"whitespace_pattern": jsonGap}
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

// member is a key of a JSON object and its value.
type member struct {
	key   string
	value json.RawMessage
}

// members returns the members of an object in the order of the text.
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

// schemaMaps are the keywords whose values are objects of schemas by name.
var schemaMaps = []string{"properties", "patternProperties", "$defs", "definitions"}

// literalKeywords are the keywords whose values are not schemas.
var literalKeywords = []string{"enum", "const", "default", "examples"}

// closed returns the schema v with additionalProperties false in every schema that has
// properties but neither additionalProperties nor unevaluatedProperties. byName: v is an
// object of schemas by name.
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
	hasProperties, hasRule := false, false
	for _, m := range list {
		hasProperties = hasProperties || m.key == "properties"
		hasRule = hasRule || m.key == "additionalProperties" || m.key == "unevaluatedProperties"
		if byName || !slices.Contains(literalKeywords, m.key) {
			if m.value, err = closed(m.value, !byName && slices.Contains(schemaMaps, m.key)); err != nil {
				return nil, err
			}
		}
		key, err := json.Marshal(m.key)
		if err != nil {
			return nil, err
		}
		parts = append(parts, string(key)+":"+string(m.value))
	}
	if !byName && hasProperties && !hasRule {
		parts = append(parts, `"additionalProperties":false`)
	}
	return json.RawMessage("{" + strings.Join(parts, ",") + "}"), nil
}
