package dialect

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// kinds is the set of JSON types that a value may have; 0: not declared.
type kinds uint8

const (
	isNull kinds = 1 << iota
	isInteger
	isNumber
	isBoolean
	isObject
	isArray
	isString
)

// kindNames maps the type names of JSON Schema, and others that tools use, to kinds.
var kindNames = map[string]kinds{
	"null": isNull, "integer": isInteger, "int": isInteger, "number": isNumber, "float": isNumber, "boolean": isBoolean, "bool": isBoolean,
	"object": isObject, "dict": isObject, "array": isArray, "list": isArray, "string": isString, "str": isString,
}

// schema is a JSON Schema at a position in root, to which its references refer.
type schema struct {
	root, at map[string]any
}

// maxRefs bounds how many references and unions are followed.
const maxRefs = 32

// parametersOf returns the schema of a function's parameters; empty if the request has no
// such function.
func (o *Options) parametersOf(name string) schema {
	for _, raw := range o.Functions {
		var tool struct {
			Function struct {
				Name       string
				Parameters map[string]any
			}
		}
		if json.Unmarshal(raw, &tool) == nil && tool.Function.Name == name {
			return schema{tool.Function.Parameters, tool.Function.Parameters}
		}
	}
	return schema{}
}

// resolve returns the schema that s refers to.
func (s schema) resolve() schema {
	for range maxRefs {
		ref, is := s.at["$ref"].(string)
		if !is {
			return s
		}
		var at any = s.root
		path, local := strings.CutPrefix(ref, "#")
		for _, step := range strings.Split(strings.Trim(path, "/"), "/") {
			if step == "" {
				continue
			}
			m, _ := at.(map[string]any)
			at = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
		}
		s.at, _ = at.(map[string]any)
		if !local {
			s.at = nil
		}
	}
	return schema{root: s.root}
}

// property returns the schema of a key, item that of an element; both are empty if none is
// declared.
func (s schema) property(key string) schema {
	return s.find(maxRefs, func(at map[string]any) any {
		props, _ := at["properties"].(map[string]any)
		return props[key]
	})
}

func (s schema) item() schema {
	return s.find(maxRefs, func(at map[string]any) any { return at["items"] })
}

// find returns a part of s, or of the first member of a union that has it.
func (s schema) find(left int, part func(map[string]any) any) schema {
	s = s.resolve()
	if m, is := part(s.at).(map[string]any); is {
		return schema{s.root, m}
	}
	if left > 0 {
		for _, member := range s.union() {
			if found := member.find(left/4, part); found.at != nil {
				return found
			}
		}
	}
	return schema{root: s.root}
}

// union returns the members of anyOf, oneOf and allOf.
func (s schema) union() []schema {
	var out []schema
	for _, word := range []string{"anyOf", "oneOf", "allOf"} {
		list, _ := s.at[word].([]any)
		for _, x := range list {
			if m, is := x.(map[string]any); is {
				out = append(out, schema{s.root, m})
			}
		}
	}
	return out
}

// kinds returns the types that s declares.
func (s schema) kinds() kinds { return s.kindsWithin(maxRefs) }

func (s schema) kindsWithin(left int) kinds {
	s = s.resolve()
	var out kinds
	switch t := s.at["type"].(type) {
	case string:
		out = kindNames[t]
	case []any:
		for _, x := range t {
			name, _ := x.(string)
			out |= kindNames[name]
		}
	}
	if out == 0 {
		list, _ := s.at["enum"].([]any)
		if c, is := s.at["const"]; is {
			list = append(list, c)
		}
		for _, x := range list {
			out |= kindOf(x)
		}
	}
	if left > 0 {
		for _, member := range s.union() {
			out |= member.kindsWithin(left / 4)
		}
	}
	if s.at["nullable"] == true {
		out |= isNull
	}
	return out
}

func kindOf(v any) kinds {
	switch x := v.(type) {
	case nil:
		return isNull
	case bool:
		return isBoolean
	case float64:
		if x == math.Trunc(x) {
			return isInteger
		}
		return isNumber
	case string:
		return isString
	case []any:
		return isArray
	}
	return isObject
}

// convert returns the JSON of an untyped text, by the first type of k that matches it: null,
// integer, number, boolean, object, array, string. Text that matches none is a string.
func convert(text string, k kinds) string {
	t := strings.TrimSpace(text)
	if k&isNull != 0 && strings.EqualFold(t, "null") {
		return "null"
	}
	if k&isInteger != 0 && decimal(t) {
		return integer(t)
	}
	if k&isNumber != 0 {
		if n, ok := number(t); ok {
			return n
		}
	}
	if k&isBoolean != 0 {
		switch strings.ToLower(t) {
		case "true", "1":
			return "true"
		case "false", "0":
			return "false"
		}
	}
	if (k&isObject != 0 && strings.HasPrefix(t, "{") || k&isArray != 0 && strings.HasPrefix(t, "[")) && json.Valid([]byte(t)) {
		return t
	}
	return quote(text)
}

// decimal reports whether t is an integer in decimal digits.
func decimal(t string) bool {
	digits := strings.TrimLeft(t[:min(1, len(t))], "+-") + t[min(1, len(t)):]
	return digits != "" && strings.Trim(digits, "0123456789") == ""
}

// integer returns a decimal integer in JSON syntax.
func integer(t string) string {
	sign := ""
	if t[0] == '-' {
		sign = "-"
	}
	digits := strings.TrimLeft(strings.TrimLeft(t, "+-"), "0")
	if digits == "" {
		return "0"
	}
	return sign + digits
}

// number returns a finite number in JSON syntax; a whole number is written as an integer.
func number(t string) (string, bool) {
	if t == "" || strings.Trim(t, "0123456789+-.eE") != "" {
		return "", false
	}
	if decimal(t) {
		return integer(t), true
	}
	x, err := strconv.ParseFloat(t, 64)
	switch {
	case err != nil:
		return "", false
	case x == math.Trunc(x) && math.Abs(x) <= 1<<53:
		return strconv.FormatInt(int64(x), 10), true
	case json.Valid([]byte(t)):
		return t, true
	}
	return strconv.FormatFloat(x, 'g', -1, 64), true
}

// NoParameters reports whether a function takes no arguments: its parameters are missing,
// null or {}.
func NoParameters(schema json.RawMessage) bool {
	s := strings.Join(strings.Fields(string(schema)), "")
	return s == "" || s == "null" || s == "{}"
}
