package rawjson

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

var samples = []string{
	`{}`, ` { "a" : 1 , "b":[1, 2],"a":{"c":"}\""} } `, `[]`, ` [ "a" , {"b":[]}, 1.5e3,true,null ]`, `"a\u00e9\n\"\\"`, `"\ud83d\ude00 \ud83d x \ude00 \ud83d\u0041"`,
	"\"\u2028\"", `[1,-2, 2147483647,-2147483648]`, `[2147483648]`, `[1.0]`, `[1e2]`, `[null]`, `[-0]`, `["1"]`, `null`, `true`, `-1.5`, `"`, `{`, `{"a"`, `{"a":}`, `[1`, `{"\u0061":1}`,
	`{{"`, `[{"a\`, `["`, `{"a":["\`,
}

// agree compares this package with encoding/json for text that Check accepts.
func agree(t *testing.T, text string) {
	b := []byte(text)
	object, isObject := Object(b, 1<<20)
	array, isArray := Array(b, 1<<20)
	str, isString := String(b)
	ints, isInts := Ints(b)
	if Check(b) != nil {
		return // no panic
	}
	var o map[string]json.RawMessage
	var a []json.RawMessage
	var s *string
	var n []*int32
	kind := Kind(b)
	if is := kind == '{' && json.Unmarshal(b, &o) == nil; is != isObject || is && !reflect.DeepEqual(o, object) {
		t.Errorf("%q is %v %s, want %v %s", text, isObject, object, is, o)
	}
	if is := kind == '[' && json.Unmarshal(b, &a) == nil; is != isArray || is && !reflect.DeepEqual(a, array) {
		t.Errorf("%q is %v %s, want %v %s", text, isArray, array, is, a)
	}
	if is := kind == '"' && json.Unmarshal(b, &s) == nil; is != isString || is && *s != str {
		t.Errorf("%q is %v %q, want %v", text, isString, str, is)
	}
	is := kind == '[' && json.Unmarshal(b, &n) == nil
	for i := 0; is && i < len(n); i++ {
		is = n[i] != nil && (!isInts || i < len(ints) && *n[i] == ints[i])
	}
	if is != isInts || is && len(n) != len(ints) {
		t.Errorf("%q is %v %v, want %v", text, isInts, ints, is)
	}
}

func TestAgreesWithJSON(t *testing.T) {
	for _, s := range samples {
		agree(t, s)
	}
}

func FuzzAgreesWithJSON(f *testing.F) {
	for _, s := range samples {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { agree(t, s) })
}

// TestOneAllocation checks that strings and lists are allocated once, at their exact size.
func TestOneAllocation(t *testing.T) {
	const n = 1000
	list := []byte("[" + strings.Repeat(`"x",`, n-1) + `"x"]`)
	numbers := []byte("[" + strings.Repeat("1,", n-1) + "1]")
	plain, escaped := []byte(`"`+strings.Repeat("x", n)+`"`), []byte(`"`+strings.Repeat(`\n`, n)+`"`)
	for name, take := range map[string]func() bool{
		"Array":             func() bool { _, ok := Array(list, n); return ok },
		"Ints":              func() bool { _, ok := Ints(numbers); return ok },
		"String":            func() bool { _, ok := String(plain); return ok },
		"String with \\n's": func() bool { _, ok := String(escaped); return ok },
	} {
		if got := testing.AllocsPerRun(10, func() {
			if !take() {
				t.Errorf("%s returns false", name)
			}
		}); got != 1 {
			t.Errorf("%s allocates %v times", name, got)
		}
	}
	if a, _ := Array(list, n); cap(a) != n {
		t.Errorf("Array has a capacity of %d for %d elements", cap(a), n)
	}
}

func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":[1,2,{"b":null}]}`: "",
		`{`:                      "unexpected end of JSON input at byte 1",
		"\"\xff\"":               "the body is not UTF-8 at byte 1",
		strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1): "the body nests deeper than 100 levels",
		"[" + strings.Repeat(`"",`, MaxValues) + `""]`:                    "the body holds more than 131072 values, numbers not counted",
		"[" + strings.Repeat(`1,`, MaxValues) + `1]`:                      "",
		"{} x": "invalid character 'x' after top-level value at byte 4",
	} {
		got := ""
		if err := Check([]byte(text)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%.20q: %q, want %q", text, got, want)
		}
	}
	if n := Values([]byte(`{"a":["b",true,false,null,1,{}]}`)); n != 8 {
		t.Errorf("%d values, want 8", n)
	}
}

// TestMost checks that more members or elements than allowed are refused.
func TestMost(t *testing.T) {
	if _, ok := Object([]byte(`{"a":1,"b":2}`), 1); ok {
		t.Error("an object of two members is accepted with a limit of one")
	}
	if _, ok := Array([]byte(`[1,2]`), 1); ok {
		t.Error("an array of two elements is accepted with a limit of one")
	}
}
