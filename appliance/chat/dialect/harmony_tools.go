package dialect

import (
	"bytes"
	"encoding/json"
	"strings"
)

// harmonyFunction returns a tool as a TypeScript type, as openai-harmony renders it.
func harmonyFunction(raw json.RawMessage) string {
	var tool struct {
		Function struct {
			Name, Description string
			Parameters        json.RawMessage
		}
	}
	// the request was checked: every tool is a function
	_ = json.Unmarshal(raw, &tool)
	f := tool.Function
	text := ""
	for line := range strings.Lines(f.Description) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		text += "// " + line + "\n"
	}
	text += "type " + f.Name + " = "
	if NoParameters(f.Parameters) {
		return text + "() => any;"
	}
	return text + "(_: " + typeScript(f.Parameters).render("", 0) + ") => any;"
}

// typeScript is a JSON Schema that is rendered as a TypeScript type, keys in their order.
type typeScript json.RawMessage

// get returns the value of a key.
func (s typeScript) get(key string) json.RawMessage {
	for _, m := range members(string(s)) {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// text returns the string value of a key.
func (s typeScript) text(key string) (string, bool) { return unquote(s.get(key)) }

// list returns the array value of a key.
func (s typeScript) list(key string) (list []json.RawMessage, is bool) {
	raw := s.get(key)
	return list, len(raw) > 0 && raw[0] == '[' && json.Unmarshal(raw, &list) == nil
}

// texts returns the strings in the array value of a key.
func (s typeScript) texts(key string) []string {
	var out []string
	list, _ := s.list(key)
	for _, raw := range list {
		if t, is := unquote(raw); is {
			out = append(out, t)
		}
	}
	return out
}

// render returns the type of a value; the lines of its members begin with indent.
func (s typeScript) render(indent string, depth int) string {
	if depth > maxDepth {
		return "any"
	}
	if branches, is := s.list("oneOf"); is {
		text := ""
		for _, b := range branches {
			branch := typeScript(b)
			text += "\n" + indent + " | " + branch.within(indent+"   ", depth) + branch.trailing(true, false)
		}
		return text
	}
	if types := s.texts("type"); len(types) > 0 {
		for i, t := range types {
			if t == "integer" {
				types[i] = "number"
			}
		}
		return strings.Join(types, " | ")
	}
	switch word, _ := s.text("type"); word {
	case "object":
		return s.object(indent, depth)
	case "string":
		if options := s.texts("enum"); len(options) > 0 {
			return `"` + strings.Join(options, `" | "`) + `"`
		}
		return "string"
	case "number", "integer":
		return "number"
	case "boolean":
		return word
	case "array":
		if items := s.get("items"); items != nil {
			return typeScript(items).render(indent, depth+1) + "[]"
		}
		return "Array<any>"
	}
	return "any"
}

// within returns the type of a member, with null if it is nullable.
func (s typeScript) within(indent string, depth int) string {
	text := s.render(indent, depth+1)
	if string(s.get("nullable")) == "true" && !strings.Contains(text, "null") {
		text += " | null"
	}
	return text
}

// trailing returns the comment after a branch: its description and its default.
func (s typeScript) trailing(described, bare bool) string {
	var out []string
	if d, is := s.text("description"); is && described {
		out = append(out, d)
	}
	if d := s.defaults(bare); d != "" {
		out = append(out, d)
	}
	if len(out) == 0 {
		return ""
	}
	return " // " + strings.Join(out, " ")
}

// defaults returns the comment about the default value, "" if there is none. A string has
// quotes, except a value of an enum if bare is set; other values are JSON.
func (s typeScript) defaults(bare bool) string {
	raw := s.get("default")
	if raw == nil {
		return ""
	}
	options, _ := s.list("enum")
	text, is := unquote(raw)
	switch {
	case is && len(options) == 0:
		text = `"` + text + `"`
	case !is || !bare:
		var b bytes.Buffer
		_ = json.Compact(&b, raw) // a part of valid JSON
		text = b.String()
	}
	return "default: " + text
}

// object returns the type of an object with its properties.
func (s typeScript) object(indent string, depth int) string {
	text := ""
	if d, is := s.text("description"); is {
		text = indent + "// " + d + "\n"
	}
	required := map[string]bool{}
	for _, name := range s.texts("required") {
		required[name] = true
	}
	text += "{\n"
	for _, m := range members(string(s.get("properties"))) {
		key := m.key + "?"
		if required[m.key] {
			key = m.key
		}
		text += typeScript(m.value).property(key, indent, depth)
	}
	return text + indent + "}"
}

// property returns the lines of a property.
func (s typeScript) property(key, indent string, depth int) string {
	comment := func(t string) string { return indent + "// " + t + "\n" }
	text := ""
	if title, is := s.text("title"); is {
		text += comment(title) + indent + "//\n"
	}
	description, described := s.text("description")
	if described && s.get("oneOf") == nil {
		text += comment(description)
	}
	if list, _ := s.list("examples"); len(list) > 0 {
		text += comment("Examples:")
		for _, x := range s.texts("examples") {
			text += comment(`- "` + x + `"`)
		}
	}
	if branches, is := s.list("oneOf"); is {
		return text + s.branches(key, indent, depth, branches)
	}
	text += indent + key + ": " + s.within(indent+"    ", depth) + ","
	if d := s.defaults(true); d != "" && s.get("oneOf") == nil {
		text += " // " + d
	}
	return text + "\n"
}

// branches returns the lines of a property with several alternative types. Its description
// is above it, unless the first type has the same description.
func (s typeScript) branches(key, indent string, depth int, list []json.RawMessage) string {
	text := ""
	description, described := s.text("description")
	above := described
	if len(list) > 0 {
		first, is := typeScript(list[0]).text("description")
		above = described && !(is && first == description)
	}
	if above {
		text += indent + "// " + description + "\n"
	}
	if d := s.defaults(true); d != "" {
		text += indent + "// " + d + "\n"
	}
	text += indent + key + ":\n"
	for i, b := range list {
		branch := typeScript(b)
		own, is := branch.text("description")
		shown := is && !(described && own == description) && !(i == 0 && above)
		text += indent + " | " + branch.within(indent+"   ", depth) + branch.trailing(shown, true) + "\n"
	}
	return text + indent + ",\n"
}
