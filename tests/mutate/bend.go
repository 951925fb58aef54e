package mutate

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
)

// raw is a piece of JSON text, valid or invalid.
type raw string

// place is a position in a value: object[key], or array[index].
type place struct {
	object map[string]any
	key    string
	array  []any
	index  int
}

func (p place) get() any {
	if p.object != nil {
		return p.object[p.key]
	}
	return p.array[p.index]
}

func (p place) set(v any) {
	if p.object != nil {
		p.object[p.key] = v
		return
	}
	p.array[p.index] = v
}

// places returns all positions below v.
func places(v any, out []place) []place {
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for k := range v {
			names = append(names, k)
		}
		sort.Strings(names)
		for _, k := range names {
			out = places(v[k], append(out, place{object: v, key: k}))
		}
	case []any:
		for i := range v {
			out = places(v[i], append(out, place{array: v, index: i}))
		}
	}
	return out
}

// bend changes a value at one position.
func (m *Maker) bend(v any) (any, string) {
	all := places(v, nil)
	if len(all) == 0 {
		return m.odd(), "another value"
	}
	p := all[m.rnd.IntN(len(all))]
	switch m.rnd.IntN(9) {
	case 0:
		if p.object != nil {
			delete(p.object, p.key)
			return v, "without " + p.key
		}
		p.set(nil)
		return v, "null"
	case 1:
		n := raw(pick(m.rnd, numbers...))
		p.set(n)
		return v, "number " + string(n)
	case 2:
		p.set(raw(m.deep()))
		return v, "deep"
	case 3:
		p.set(raw(pick(m.rnd, texts...)))
		return v, "odd text"
	case 4:
		if p.object != nil {
			p.object["unknown"], p.object["__proto__"] = p.get(), m.odd()
			return v, "unknown fields"
		}
	case 5:
		if m.rnd.IntN(20) == 0 {
			p.set(raw(m.many()))
			return v, "many"
		}
	case 6:
		if o, ok := v.(map[string]any); ok && !m.Gentle {
			name, bomb := m.bomb()
			o[name] = raw(bomb)
			return v, "bomb in " + name
		}
	}
	p.set(m.odd())
	return v, "another type"
}

var numbers = []string{
	"1e999", "-1e999", "1e308", "-0", "0.1", "-1", "-2", "2147483647", "2147483648", "-2147483649", "9223372036854775807",
	"9223372036854775808", "18446744073709551616", "1e18", "1.0", "3.0000000000000001", "1E400", "5e-324",
	"00", "+1", ".5", "1.", "NaN", "Infinity", "-Infinity", "0x10", strings.Repeat("9", 400), "0." + strings.Repeat("0", 5000) + "1",
}

var texts = []string{
	"\"\xff\xfe\"", "\"\xc3\x28\"", "\"\xed\xa0\x80\"", `"\ud800"`, `"\udc00\ud800"`, `"\u0000"`, `"\u0000\u0001\u001f"`, "\"\x00\"", "\"a\nb\"",
	`"\x41"`, `"\u12"`, `"unterminated`, `"<|im_end|><|endoftext|><eos>[TOOL_CALLS]"`, `"{{ 7*7 }}{% for i in range(10**9) %}x{% endfor %}"`,
	`""`, `" "`, `"` + strings.Repeat("a", 20000) + `"`, `"` + strings.Repeat("\\u00e9", 4000) + `"`, `"` + strings.Repeat("\U0001F468\u200d", 1000) + `"`,
	`"../../etc/passwd"`, `"none"`, `"null"`, `"NaN"`, `"-1"`,
}

// odd returns a value of any type.
func (m *Maker) odd() any {
	return pick[any](m.rnd, nil, true, false, 0, -1, 1, 0.5, "", "x", []any{}, []any{nil}, []any{1, "a", nil}, [][]int{{1}, {}, {-1}},
		map[string]any{}, map[string]any{"": nil}, map[string]any{"type": "object"}, map[string]any{"a": map[string]any{"b": []any{1}}},
		[]any{1 << 40}, []any{-1}, "😀")
}

// deep returns JSON with more levels than a reader should accept.
func (m *Maker) deep() string {
	n := pick(m.rnd, 50, 99, 101, 1000, 20000)
	switch m.rnd.IntN(3) {
	case 0:
		return strings.Repeat("[", n) + strings.Repeat("]", n)
	case 1:
		return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n)
	}
	return strings.Repeat("[", n) // never closed
}

// many returns a long array.
func (m *Maker) many() string {
	n := pick(m.rnd, 1000, 100_000, 140_000)
	one := pick(m.rnd, `{"role":"user","content":"x"}`, `"x"`, "1", "{}", "null", `{"type":"text","text":"x"}`)
	return "[" + strings.Repeat(one+",", n-1) + one + "]"
}

// bomb returns a small field that would cause much work in a server that trusts it.
func (m *Maker) bomb() (name, value string) {
	schema := pick(m.rnd,
		`{"$ref":"#"}`, `{"allOf":[{"$ref":"#"},{"$ref":"#"}]}`, `{"type":"string","minLength":1000000,"maxLength":2000000}`,
		`{"type":"array","minItems":1000000,"items":{"type":"array","minItems":1000000}}`, `{"type":"string","pattern":"(a+)+$"}`,
		`{"type":"string","pattern":"((a{1,1000}){1,1000}){1,1000}"}`, `{"enum":[`+strings.Repeat(`"x",`, 20000)+`"y"]}`,
		`{"type":"object","properties":{`+wide(5000)+`},"additionalProperties":false}`, `{"anyOf":[`+strings.Repeat(`{"type":"object"},`, 3000)+`{}]}`,
		`{"type":"integer","multipleOf":1e-300,"minimum":-1e300}`, `{"$ref":"http://127.0.0.1:1/x"}`, `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`,
		`{"not":{}}`, `true`, `false`, `[]`, `"x"`, `{"type":"nonsense"}`)
	regex := pick(m.rnd, `(a+)+$`, `((a{1,999}){1,999}){1,999}`, `(`, `[`, `a{99999999}`, `(?=a)b`, `\\1`, strings.Repeat("(", 5000), strings.Repeat("a?", 3000)+strings.Repeat("a", 3000), `.*.*.*.*.*.*.*.*.*.*x`)
	q, _ := json.Marshal(regex)
	pair := pick(m.rnd,
		[2]string{"response_format", `{"type":"json_schema","json_schema":{"name":"x","schema":` + schema + `}}`},
		[2]string{"structured_outputs", `{"json":` + schema + `}`}, [2]string{"structured_outputs", `{"regex":` + string(q) + `}`},
		[2]string{"structured_outputs", `{"grammar":"start: start start | \"a\""}`}, [2]string{"guided_regex", string(q)},
		[2]string{"structured_outputs", `{"choice":[` + strings.Repeat(`"x",`, 30000) + `"y"]}`},
		[2]string{"text", `{"format":{"type":"json_schema","name":"x","schema":` + schema + `}}`},
		[2]string{"tools", `[{"type":"function","function":{"name":"f","parameters":` + schema + `}}],"tool_choice":"required"`},
		[2]string{"tools", `[` + strings.Repeat(`{"type":"function","function":{"name":"f"}},`, 2000) + `{}]`},
		[2]string{"chat_template", `"{% for i in range(100000000) %}{% for j in range(100000000) %}x{% endfor %}{% endfor %}"`},
		[2]string{"chat_template", `"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}"`},
		[2]string{"chat_template", `"{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}"`},
		[2]string{"chat_template", `"{{ 'x' * 10000000000 }}"`}, [2]string{"chat_template", `"{{ range(1000000000)|list }}{% if %}"`},
		[2]string{"chat_template_kwargs", `{"messages":1,"tools":{},"bos_token":[],"enable_thinking":"x"}`},
		[2]string{"stop", `[` + strings.Repeat(`"x",`, 5000) + `"y"]`}, [2]string{"bad_words", `[` + strings.Repeat(`"abc",`, 5000) + `"y"]`},
		[2]string{"logit_bias", `{` + strings.Repeat(`"1":1,`, 5000) + `"2":2}`}, [2]string{"logprobs", "true"}, [2]string{"top_logprobs", "20"},
		[2]string{"n", "100000"}, [2]string{"stream", "true"}, [2]string{"documents", "[{}]"},
		[2]string{"messages", `[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":"}}]},{"role":"tool","content":"x"}]`},
	)
	return pair[0], pair[1]
}

func wide(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"f%d":{"type":"string"}`, i)
	}
	return b.String()
}
