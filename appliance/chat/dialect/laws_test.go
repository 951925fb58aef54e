package dialect

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// pairs returns the combinations of reasoning and tool parsers under test.
func pairs() [][2]string {
	var out [][2]string
	rs, ts := append([]Entry{{}}, Reasonings()...), append([]Entry{{}}, Tools()...)
	for _, r := range rs {
		for _, t := range ts {
			harmony := r.Name == "openai_gptoss" || t.Name == "openai"
			switch {
			case variants[t.Name] && r.Name != "", variants[r.Name] && t.Name != "hermes":
			case harmony && r.Name != "" && t.Name != "" && (r.Name != "openai_gptoss" || t.Name != "openai"):
			case r.Name == "" || t.Name == "" || t.Name == "hermes" || r.Name == "qwen3" || r.Name == t.Name || harmony:
				out = append(out, [2]string{r.Name, t.Name})
			}
		}
	}
	return out
}

// variants are the parsers that share the machine of another one, so that fewer combinations
// and rounds test them: those of hermes, deepseek_v31, deepseek_r1 and qwen3.
var variants = map[string]bool{
	"granite": true, "granite-20b-fc": true, "phi4_mini_json": true, "hunyuan_a13b": true, "internlm": true, "longcat": true, "kimi_k2": true, "minimax_m2": true,
	"deepseek_v3": true, "glm45": true, "nemotron_v3": true, "step3p5": true, "seed_oss": true, "ernie45": true,
}

// times returns the number of messages for a combination of parsers.
func times(pair [2]string) int {
	n := rounds / fewer()
	if variants[pair[0]] || variants[pair[1]] {
		n /= 4
	}
	return n
}

// stream parses a text in pieces and checks the rules that every stream must follow.
func stream(t *testing.T, o Options, pieces []string, tokens bool, reason string) (Message, string) {
	t.Helper()
	marks := map[string]bool{}
	if tokens {
		for _, m := range Markers() {
			marks[m] = true
		}
		o.Token = func(m string) bool { return marks[m] }
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	var m Message
	seen := map[int]string{}
	take := func(ds []Delta) {
		for _, d := range ds {
			id, known := seen[d.Index]
			switch {
			case d.Kind != ToolCall && d.Text == "":
				t.Fatalf("an empty delta: %+v", d)
			case d.Kind != ToolCall:
			case !known && (d.Index != len(seen) || d.ID == "" || d.Name == ""):
				t.Fatalf("the first delta of a call has no id, no name or a wrong index: %+v", d)
			case known && (d.ID != "" || d.Name != "" || d.Text == ""):
				t.Fatalf("a later delta of call %s: %+v", id, d)
			case !known:
				for _, other := range seen {
					if other == d.ID {
						t.Fatalf("id %s twice", d.ID)
					}
				}
				seen[d.Index] = d.ID
			}
			if !utf8.ValidString(d.Text) {
				t.Fatalf("half a character: %q", d.Text)
			}
			m.Add(d)
		}
	}
	for _, s := range pieces {
		if marks[s] {
			take(p.Mark(s))
		} else {
			take(p.Feed(s))
		}
	}
	last, finish := p.Finish(reason)
	take(last)
	return m, finish
}

// cuts returns the ways in which a text is split.
func cuts(text string, r *rand.Rand) map[string][]string {
	out := map[string][]string{"whole": {text}}
	for _, n := range []int{1, 3, 7} {
		out[fmt.Sprint(n)] = runes(text, func() int { return n })
	}
	out["random"] = runes(text, func() int { return 1 + r.IntN(20) })
	return out
}

func runes(text string, size func() int) []string {
	var out []string
	for list := []rune(text); len(list) > 0; {
		n := min(size(), len(list))
		out = append(out, string(list[:n]))
		list = list[n:]
	}
	return out
}

// tokenized splits a text at markers, and at random between them.
func tokenized(text string, r *rand.Rand) []string {
	var out []string
	for text != "" {
		at, marker := len(text), ""
		for _, m := range Markers() {
			if i := strings.Index(text, m); i >= 0 && (i < at || i == at && len(m) > len(marker)) {
				at, marker = i, m
			}
		}
		out = append(out, runes(text[:at], func() int { return 1 + r.IntN(4) })...)
		if marker != "" {
			out = append(out, marker)
		}
		text = text[at+len(marker):]
	}
	return out
}

// ids returns a function that returns the call IDs c1, c2, ….
func ids() func() string {
	n := 0
	return func() string { n++; return fmt.Sprintf("c%d", n) }
}

// same checks that every way of splitting a text gives the same message.
func same(t *testing.T, o Options, text, reason string, r *rand.Rand) (Message, string) {
	t.Helper()
	o.NewID = ids()
	want, finish, err := Parse(o, text, reason)
	if err != nil {
		t.Fatal(err)
	}
	for how, pieces := range cuts(text, r) {
		o.NewID = ids()
		if got, f := stream(t, o, pieces, false, reason); !reflect.DeepEqual(got, want) || f != finish {
			t.Fatalf("%s+%s, %q cut %s:\n got %+v %s\nwant %+v %s", o.Reasoning, o.Tools, text, how, got, f, want, finish)
		}
	}
	return want, finish
}

// checked compares messages: content is trimmed if there are calls, and arguments are
// compared as JSON values.
func checked(t *testing.T, what string, got, want Message) {
	t.Helper()
	if len(want.Calls) > 0 {
		got.Content, want.Content = strings.TrimSpace(got.Content), strings.TrimSpace(want.Content)
	}
	bad := got.Reasoning != want.Reasoning || got.Content != want.Content || len(got.Calls) != len(want.Calls)
	for i := 0; !bad && i < len(got.Calls); i++ {
		var a, b any
		g, w := got.Calls[i], want.Calls[i]
		bad = g.Name != w.Name || g.ID == "" || json.Unmarshal([]byte(g.Arguments), &a) != nil ||
			json.Unmarshal([]byte(w.Arguments), &b) != nil || !reflect.DeepEqual(a, b)
	}
	if bad {
		t.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// thinkingOn are the kwargs with which every reasoning parser expects reasoning.
var thinkingOn = map[string]json.RawMessage{"enable_thinking": json.RawMessage("true")}

// TestParseOfRender checks that parse(render(m)) = m, for every combination of parsers and
// every way of splitting, with markers as text and as tokens.
func TestParseOfRender(t *testing.T) {
	for _, pair := range pairs() {
		t.Run(pair[0]+"+"+pair[1], func(t *testing.T) {
			r := rand.New(rand.NewPCG(11, 12))
			for range times(pair) {
				g := generator{r, pair[1]}
				m, functions := g.message(pair[0] != "")
				text, err := Render(pair[0], pair[1], m)
				if err != nil {
					t.Fatal(err)
				}
				o := Options{Reasoning: pair[0], Tools: pair[1], Functions: functions, Kwargs: thinkingOn}
				got, finish := same(t, o, text, "stop", r)
				checked(t, fmt.Sprintf("%q", text), got, m)
				if want := map[bool]string{true: "tool_calls", false: "stop"}[len(m.Calls) > 0]; finish != want {
					t.Fatalf("%q: finish_reason %s, want %s", text, finish, want)
				}
				got, _ = stream(t, o, tokenized(text, r), true, "stop")
				checked(t, fmt.Sprintf("%q in tokens", text), got, m)
			}
		})
	}
}

// TestTruncated cuts texts off at any point. However the rest is split, the message has the
// first calls and the content before them, and no markup.
func TestTruncated(t *testing.T) {
	for _, pair := range pairs() {
		t.Run(pair[0]+"+"+pair[1], func(t *testing.T) {
			r := rand.New(rand.NewPCG(21, 22))
			for range times(pair) / 5 {
				g := generator{r, pair[1]}
				m, functions := g.message(pair[0] != "")
				text, _ := Render(pair[0], pair[1], m)
				o := Options{Reasoning: pair[0], Tools: pair[1], Functions: functions, Kwargs: thinkingOn}
				for range 8 {
					cut := text[:r.IntN(len(text)+1)]
					for !utf8.ValidString(cut) {
						cut = cut[:len(cut)-1]
					}
					got, finish := same(t, o, cut, "length", r)
					if finish != "length" {
						t.Fatalf("%q: finish_reason %s", cut, finish)
					}
					got.Reasoning, got.Content = uncut(got.Reasoning), uncut(got.Content)
					if !strings.HasPrefix(m.Reasoning, got.Reasoning) || len(got.Calls) > len(m.Calls) {
						t.Fatalf("%q: %+v of %+v", cut, got, m)
					}
					if !strings.HasPrefix(strings.TrimSpace(m.Content), strings.TrimSpace(got.Content)) {
						t.Fatalf("%q: content %q of %q", cut, got.Content, m.Content)
					}
					for i, c := range got.Calls {
						if c.Name != m.Calls[i].Name {
							t.Fatalf("%q: call %+v of %+v", cut, c, m.Calls[i])
						}
					}
				}
			}
		})
	}
}

// uncut removes the beginning of a marker, less than half of it, from the end of s.
func uncut(s string) string {
	most := 0
	for _, m := range Markers() {
		for n := 1; n <= min(4, len(m)/2); n++ {
			if strings.HasSuffix(s, m[:n]) {
				most = max(most, n)
			}
		}
	}
	return s[:len(s)-most]
}

// TestAnything checks that random pieces of model output give the same message however they
// are split.
func TestAnything(t *testing.T) {
	for _, pair := range pairs() {
		t.Run(pair[0]+"+"+pair[1], func(t *testing.T) {
			r := rand.New(rand.NewPCG(31, 32))
			pieces := append(Markers(), fragments...)
			for range times(pair) {
				text := ""
				for range r.IntN(12) {
					text += pieces[r.IntN(len(pieces))]
				}
				choice := []string{Auto, None, Auto, Auto}[r.IntN(4)]
				o := Options{Reasoning: pair[0], Tools: pair[1], Choice: choice, OneCall: r.IntN(4) == 0}
				m, _ := same(t, o, text, []string{"stop", "length"}[r.IntN(2)], r)
				if choice == None && len(m.Calls) > 0 || o.OneCall && len(m.Calls) > 1 {
					t.Fatalf("%q, choice %s: %+v", text, choice, m)
				}
				a := tokenized(text, r)
				o.NewID = ids()
				one, _ := stream(t, o, a, true, "stop")
				o.NewID = ids()
				two, _ := stream(t, o, tokenized(text, r), true, "stop")
				if !reflect.DeepEqual(one, two) {
					t.Fatalf("%q in tokens: %+v and %+v", text, one, two)
				}
			}
		})
	}
}

// fragments are pieces of model output, valid and invalid.
var fragments = []string{
	"a", " ", "\n", "thought\n", "thought", "hm", "日本", "🙂", "<", "</", "{", "}", "[", "]", "\"", "\\", ":", ",", "1", "-2.5", "true", "null",
	`{"name": "f", "arguments": {"x": 1}}`, `{"name": "f", "parameters": {"x": "y"}}`, `{"arguments": [], "name": "g"}`, `{"name": 3}`,
	`{"name": "f", "arguments": {`, `"name"`, `"arguments"`, "; ", "f(", "g(a=1)", "(x='y', z=[1, {'a': None}])", ")", "'", "\"\"\"",
	"<function=f>", "</function>", "<parameter=x>", "</parameter>", "<function=", "<parameter=", "call:f{", "x:1", "call:", "f", "[{", "}]",
	" to=functions.f", "analysis", "commentary", "final", "json", "functions.g", "assistant",
	"\v", "\f", "\r\n", "\u0085", "\u00a0", "\u2028", strings.Repeat("\n", maxName-1), strings.Repeat("x", maxName-1),
}

// generator returns random messages that a dialect can represent.
type generator struct {
	*rand.Rand
	tool string
}

// words contain no marker of any dialect, but texts similar to markers.
var words = []string{
	"a", "The", " ", "  ", "\n", "é", "日本", "🙂", "<", ">", "</", "<tool", "<|", "|>", "{", "}", "[", "]", "(", ")", "\"", "'", "\\", ":", ",", "=",
	"1", "-2.5", "true", "None", "thought", "call:", "name", "arguments", "\t", "&", "#", "\\n", "\\u00e9", "%", "<func", "</para", "<para",
}

func (g generator) text(most int) string {
	var b strings.Builder
	for range g.IntN(most + 1) {
		b.WriteString(words[g.IntN(len(words))])
	}
	return b.String()
}

func (g generator) message(reasons bool) (Message, []json.RawMessage) {
	var m Message
	if reasons && g.IntN(3) > 0 {
		m.Reasoning = strings.TrimSpace(g.text(12))
	}
	if g.IntN(3) > 0 {
		m.Content = strings.TrimSpace(g.text(12))
	}
	var functions []json.RawMessage
	if g.tool == "" {
		return m, nil
	}
	for i := range g.IntN(4) {
		name := []string{"get_weather", "f", "a.b-c", "übersetze"}[g.IntN(4)]
		if g.tool != "hermes" {
			name = []string{"get_weather", "f", "x_y", "long_name_2"}[g.IntN(4)]
		}
		name = fmt.Sprintf("%s%d", name, i)
		args, schema := g.arguments()
		m.Calls = append(m.Calls, Call{ID: "x", Name: name, Arguments: args})
		functions = append(functions, json.RawMessage(fmt.Sprintf(`{"type": "function", "function": {"name": %q, "parameters": %s}}`, name, schema)))
	}
	m.Content = g.allowed(m.Content, len(m.Calls) > 0)
	return m, functions
}

// allowed returns the content that a dialect can represent together with calls.
func (g generator) allowed(content string, calls bool) string {
	switch {
	case g.tool == "pythonic" && calls:
		return "" // the whole text is the list of calls
	case g.tool == "llama3_json":
		return strings.NewReplacer("{", "", ";", "").Replace(content)
	}
	return content
}

// arguments returns a random object and its schema.
func (g generator) arguments() (args, schema string) {
	values, props := map[string]any{}, map[string]any{}
	for i := range g.IntN(4) {
		key := fmt.Sprintf("%s%d", []string{"k", "place", "x_y"}[g.IntN(3)], i)
		v, kind := g.value(2)
		values[key], props[key] = v, kind
	}
	a, _ := json.Marshal(values)
	b, _ := json.Marshal(map[string]any{"type": "object", "properties": props})
	return string(a), string(b)
}

// value returns a random value and its schema.
func (g generator) value(depth int) (v any, schema map[string]any) {
	kind := g.IntN(7)
	if depth == 0 {
		kind %= 5
	}
	switch kind {
	case 0:
		return g.IntN(2000) - 1000, map[string]any{"type": "integer"}
	case 1:
		return float64(g.IntN(1000)) / 8, map[string]any{"type": "number"}
	case 2:
		return g.IntN(2) == 0, map[string]any{"type": "boolean"}
	case 3:
		return nil, map[string]any{"type": []string{"string", "null"}}
	case 4:
		return g.text(8), map[string]any{"type": "string"}
	case 5:
		list := []any{}
		item, schema := g.value(0)
		for range g.IntN(3) {
			list = append(list, item)
		}
		return list, map[string]any{"type": "array", "items": schema}
	}
	obj, props := map[string]any{}, map[string]any{}
	for i := range g.IntN(3) {
		k := fmt.Sprintf("n%d", i)
		obj[k], props[k] = g.value(depth - 1)
	}
	return obj, map[string]any{"type": "object", "properties": props}
}

// fewer returns what -short divides rounds by.
func fewer() int {
	if testing.Short() {
		return 10
	}
	return 1
}
