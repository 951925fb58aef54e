package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// check is a condition of expect.json: one place of a reply (At, Header or Text), and what must hold
// there.
type check struct {
	At     string
	Header string
	Text   bool

	Type     string
	Equals   json.RawMessage
	Matches  string
	Min, Max *float64
	Length   *int
	JSON     []check
}

// reply checks a reply.
func (k check) reply(h http.Header, body []byte) error {
	places := 0
	for _, given := range []bool{k.At != "", k.Header != "", k.Text} {
		if given {
			places++
		}
	}
	switch {
	case places != 1:
		return fmt.Errorf("%+v names %d places, want one", k, places)
	case k.Text:
		return k.value("the text", string(body))
	case k.Header != "":
		return k.value(k.Header, h.Get(k.Header))
	}
	return k.document(body)
}

// document checks the value at k.At of a JSON text.
func (k check) document(text []byte) error {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("%s: %w", k.At, err)
	}
	for _, step := range strings.Split(k.At, ".") {
		switch in := v.(type) {
		case map[string]any:
			value, ok := in[step]
			if !ok {
				return fmt.Errorf("%s: no %q", k.At, step)
			}
			v = value
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(in) {
				return fmt.Errorf("%s: no %q in a list of %d", k.At, step, len(in))
			}
			v = in[i]
		default:
			return fmt.Errorf("%s: %q is below %s", k.At, step, kindOf(v))
		}
	}
	return k.value(k.At, v)
}

// value checks the conditions of k on a value.
func (k check) value(name string, v any) error {
	text, isText := v.(string)
	number, isNumber := v.(float64)
	held := 0
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%s is %.200s, want %s", name, fmt.Sprintf("%#v", v), fmt.Sprintf(format, args...))
	}
	if k.Type != "" {
		if held++; kindOf(v) != k.Type {
			return fail("a %s", k.Type)
		}
	}
	if k.Equals != nil {
		var want any
		if err := json.Unmarshal(k.Equals, &want); err != nil {
			return err
		}
		if held++; !reflect.DeepEqual(v, want) {
			return fail("%#v", want)
		}
	}
	if k.Matches != "" {
		if held++; !isText || !regexp.MustCompile(k.Matches).MatchString(text) {
			return fail("a match of %q", k.Matches)
		}
	}
	if k.Min != nil {
		if held++; !isNumber || number < *k.Min {
			return fail("%v or more", *k.Min)
		}
	}
	if k.Max != nil {
		if held++; !isNumber || number > *k.Max {
			return fail("%v or less", *k.Max)
		}
	}
	if k.Length != nil {
		list, isList := v.([]any)
		if held++; !(isList && len(list) == *k.Length || isText && len([]rune(text)) == *k.Length) {
			return fail("a length of %d", *k.Length)
		}
	}
	for _, below := range k.JSON {
		if held++; !isText {
			return fail("a string of JSON")
		}
		if err := below.document([]byte(text)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if held == 0 {
		return fmt.Errorf("%s: the check has no condition", name)
	}
	return nil
}

// kindOf returns the JSON type of a value.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// TestCheck checks that each condition of expect.json passes and fails as it should.
func TestCheck(t *testing.T) {
	body := []byte(`{"a": [{"b": "Paris"}, 3, null], "s": "{\"x\": 7}"}`)
	h := http.Header{"Retry-After": {"30"}}
	for _, c := range []struct {
		check string
		ok    bool
	}{
		{`{"at": "a.0.b", "matches": "^Par"}`, true}, {`{"at": "a.0.b", "matches": "^par"}`, false},
		{`{"at": "a.0.b", "equals": "Paris", "type": "string"}`, true}, {`{"at": "a.0.b", "equals": "Rome"}`, false},
		{`{"at": "a.1", "min": 3, "max": 3}`, true}, {`{"at": "a.1", "min": 4}`, false}, {`{"at": "a.1", "max": 2}`, false},
		{`{"at": "a.2", "type": "null"}`, true}, {`{"at": "a.2", "type": "object"}`, false}, {`{"at": "a.0", "type": "object"}`, true},
		{`{"at": "a", "length": 3}`, true}, {`{"at": "a", "length": 2}`, false}, {`{"at": "a.0.b", "length": 5}`, true},
		{`{"at": "s", "json": [{"at": "x", "equals": 7}]}`, true}, {`{"at": "s", "json": [{"at": "x", "equals": 8}]}`, false},
		{`{"at": "a.0.b", "json": [{"at": "x", "equals": 7}]}`, false},
		{`{"at": "a.3", "type": "null"}`, false}, {`{"at": "b", "type": "null"}`, false}, {`{"at": "a.1.x", "min": 0}`, false},
		{`{"header": "Retry-After", "matches": "^[0-9]+$"}`, true}, {`{"header": "Location", "matches": "."}`, false},
		{`{"text": true, "matches": "Paris"}`, true}, {`{"text": true, "matches": "Rome"}`, false},
		{`{"at": "a"}`, false}, {`{"matches": "a"}`, false}, {`{"at": "a", "text": true, "length": 3}`, false},
	} {
		var k check
		if err := json.Unmarshal([]byte(c.check), &k); err != nil {
			t.Fatal(err)
		}
		if err := k.reply(h, body); (err == nil) != c.ok {
			t.Errorf("%s: got %v, want it to hold: %v", c.check, err, c.ok)
		}
	}
}
