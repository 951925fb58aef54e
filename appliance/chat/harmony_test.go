//go:build cgo

package chat

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/appliance/chat/structured"
	"vapp.dev/engine/grammar"
	"vapp.dev/engine/tokenizer"
)

// stopping returns the service of marked with special tokens, in which harmony's stop tokens
// end a reply as in gpt-oss.
func stopping(t testing.TB) (*Service, *tokenizer.Tokenizer, []int32) {
	t.Helper()
	s, tok, eos := marked(t, true)
	ends := []int32{eos}
	for _, m := range dialect.HarmonyStops() {
		ends = append(ends, s.markers[m])
	}
	s.cfg.Grammars = grammar.NewCompiler(tok, tok.VocabSize(), ends)
	return s, tok, ends
}

// harmonyHeaders holds spellings of headers after <|start|>assistant, by the kind of message.
var harmonyHeaders = map[string][]string{
	"thought": {
		"<|channel|>analysis<|message|>", "<|channel|>analysis json<|message|>",
		"<|channel|>analysis <|constrain|>json<|message|>", "<|channel|>analysis<|constrain|>json<|message|>",
	},
	"final": {
		"<|channel|>final<|message|>", "<|channel|>final json<|message|>",
		"<|channel|>final <|constrain|>json<|message|>", "<|channel|>final<|constrain|>json<|message|>",
	},
	"preamble": {
		"<|channel|>commentary<|message|>", "<|channel|>commentary json<|message|>",
		"<|channel|>commentary <|constrain|>json<|message|>", "<|channel|>commentary<|constrain|>json<|message|>",
	},
	"weather": {
		// the published template, openai-harmony's renderer
		" to=functions.weather<|channel|>commentary json<|message|>",
		" to=functions.weather<|channel|>commentary <|constrain|>json<|message|>",
		// the format's description
		"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>",
		// what openai-harmony's parser accepts
		" to=functions.weather<|channel|>commentary<|message|>",
		" to=functions.weather<|channel|>commentary<|constrain|>json<|message|>",
		" to=functions.weather <|channel|>commentary json<|message|>",
		"to=functions.weather<|channel|>commentary json<|message|>",
		"<|channel|>commentary to=functions.weather<|message|>",
		"<|channel|>commentary to=functions.weather json<|message|>",
		"<|channel|>commentary to=functions.weather<|constrain|>json<|message|>",
		"<|channel|>analysis to=functions.weather <|constrain|>json<|message|>",
		"<|channel|>final to=functions.weather json<|message|>",
		" to=functions.weather<|channel|>analysis json<|message|>",
		" to=functions.weather<|channel|>final<|message|>",
	},
	"clock": {"<|channel|>commentary to=functions.clock <|constrain|>json<|message|>", " to=functions.clock<|channel|>commentary json<|message|>"},
	"other": {
		"", " ", "<|message|>", "json<|message|>", "<|constrain|>json<|message|>", "<|end|>", "<|return|>", "<|call|>",
		"<|channel|><|message|>", "<|channel|>thoughts<|message|>", "<|channel|>Final<|message|>", "<|channel|>final text", "<|channel|>final<|channel|>analysis<|message|>",
		"<|channel|>final to=user<|message|>", " to=user<|channel|>final<|message|>", " to=assistant<|channel|>final<|message|>", "<|channel|>final weather<|message|>",
		"<|channel|>analysis to=python code<|message|>", "<|channel|>commentary to=browser.open<|message|>", "<|channel|>commentary to=functions. json<|message|>",
		"<|channel|>commentary to=functions.sun <|constrain|>json<|message|>", " to=functions.sun<|channel|>commentary json<|message|>", " to=weather<|channel|>commentary json<|message|>",
		"<|start|>assistant<|channel|>final<|message|>", "<|start|>functions.weather to=assistant<|channel|>commentary<|message|>",
	},
}

const validCall, otherCall = `{"city": "Rome", "n": 3}`, `{"city": "Rome"}`

// harmonyChoices holds requests and the kinds of messages with which their replies may end.
var harmonyChoices = []struct {
	name, choice string
	tools        bool
	structure    *structured.Constraint
	ends         []string // kinds of the last message
	good, bad    string   // bodies of a final message; bad "": there is none
}{
	{name: "json_schema", structure: schemaOf(`{"type":"object","properties":{"a":{"type":"integer","maximum":9}},"required":["a"],"additionalProperties":false}`), ends: []string{"final"}, good: `{"a": 7}`, bad: `{"a": "7"}`},
	{name: "json_object", structure: &structured.Constraint{Kind: structured.JSONObject}, ends: []string{"final"}, good: `{"b": [1]}`, bad: `[1]`},
	{name: "regex", structure: &structured.Constraint{Kind: structured.Regex, Source: "[0-9]{2}/x"}, ends: []string{"final"}, good: "42/x", bad: "4x"},
	{name: "choice", structure: &structured.Constraint{Kind: structured.Choice, Source: `["yes","\"no\""]`}, ends: []string{"final"}, good: `"no"`, bad: "maybe"},
	{name: "grammar", structure: &structured.Constraint{Kind: structured.Lark, Source: "start: \"a\" b\nb: /[x}]+/"}, ends: []string{"final"}, good: "ax}", bad: "b"},
	{name: "structural_tag", structure: &structured.Constraint{Kind: structured.StructuralTag, Source: `{"structures":[{"begin":"<a>","schema":{"type":"integer"},"end":"</a>"}],"triggers":["<a"]}`}, ends: []string{"final"}, good: "so <a>7</a>.", bad: "<a>x"},
	{name: "none", choice: dialect.None, tools: true, structure: &structured.Constraint{Kind: structured.JSONObject}, ends: []string{"final"}, good: "{}", bad: "hi"},
	{name: "auto and a schema", choice: dialect.Auto, tools: true, structure: &structured.Constraint{Kind: structured.JSONObject}, ends: []string{"final", "weather", "clock"}, good: "{}", bad: "hi"},
	{name: "auto", choice: dialect.Auto, tools: true, ends: []string{"final", "preamble", "weather", "clock"}, good: "Anything."},
	{name: "required", choice: dialect.Required, tools: true, ends: []string{"weather", "clock"}},
	{name: "required and a schema", choice: dialect.Required, tools: true, structure: &structured.Constraint{Kind: structured.JSONObject}, ends: []string{"weather", "clock"}},
	{name: "named", choice: dialect.Named, tools: true, ends: []string{"weather"}},
}

func schemaOf(schema string) *structured.Constraint {
	source, err := structured.SchemaSource(json.RawMessage(schema), structured.SchemaOptions{})
	if err != nil {
		panic(err)
	}
	return &structured.Constraint{Kind: structured.JSONSchema, Source: source}
}

// TestHarmonyTable tries every spelling of every header. A constrained reply accepts those
// that the request allows, and the parser returns the message. It refuses all others, bodies
// that violate the constraint, and an end before the last message.
func TestHarmonyTable(t *testing.T) {
	s, tok, ends := stopping(t)
	const prompt, next = "<|start|>assistant", "<|end|><|start|>assistant"
	for _, c := range harmonyChoices {
		r := toolRequest("openai_gptoss", "openai", c.choice)
		if r.params.Structure = c.structure; !c.tools {
			r.params.Chat.Tools = nil
		}
		x := &harmonyTable{t, s, tok, ends, r, c.name, prompt}
		for kind, headers := range harmonyHeaders {
			for _, header := range headers {
				for _, lead := range []string{"", "<|channel|>analysis<|message|>hm" + next} {
					x.row(lead, header, kind, slices.Contains(c.ends, kind), c.good, c.bad)
				}
			}
		}
		for _, text := range []string{"", "<|channel|>analysis<|message|>hm", "<|channel|>analysis<|message|>hm<|end|>", "<|channel|>analysis<|message|>hm" + next, "<|channel|>", "<|channel|>final"} {
			x.refuses(text)
		}
	}
}

type harmonyTable struct {
	t      *testing.T
	s      *Service
	tok    *tokenizer.Tokenizer
	ends   []int32
	r      *Request
	name   string
	prompt string
}

// row tries a message after lead.
func (x *harmonyTable) row(lead, header, kind string, allowed bool, good, bad string) {
	x.t.Helper()
	switch {
	case kind == "thought":
		x.passes(lead + header + "any {text} ")
		x.refuses(lead + header + "any")
	case kind == "preamble" && allowed:
		x.passes(lead + header + "I look.<|end|><|start|>assistant<|channel|>final<|message|>")
		x.refuses(lead + header + "I look.")
	case !allowed && kind == "weather":
		x.stops(lead + header + validCall)
	case !allowed && kind == "clock":
		x.stops(lead + header + "{}")
	case !allowed:
		x.stops(lead + header + good)
		x.stops(lead + header + "anything")
	case kind == "final":
		x.gives(lead+header+good, good)
		if bad != "" {
			x.stops(lead + header + bad)
		}
	case kind == "weather":
		x.gives(lead+header+validCall, "", dialect.Call{Name: "weather", Arguments: validCall})
		x.stops(lead + header + otherCall + "}")
		x.refuses(lead + header + `{"city"`)
	case kind == "clock":
		x.gives(lead+header+"{}", "", dialect.Call{Name: "clock", Arguments: "{}"})
	}
}

// state takes a text as far as the grammar accepts it, and returns how many tokens are left.
func (x *harmonyTable) state(text string) (ids []int32, left int, mask []uint32) {
	x.t.Helper()
	ids, err := x.tok.Encode(text, false)
	if err != nil {
		x.t.Fatal(err)
	}
	st := started(x.t, x.s, x.r, x.prompt)
	mask = make([]uint32, 64)
	for i, id := range ids {
		if st.Mask(mask); mask[id/32]>>(id%32)&1 == 0 {
			return ids, len(ids) - i, mask
		}
		_, ended, err := st.Take(id)
		if err != nil {
			x.t.Fatal(err)
		}
		if ended {
			clear(mask)
			mask[x.ends[0]/32] |= 1 << (x.ends[0] % 32)
			return ids, len(ids) - i - 1, mask
		}
	}
	st.Mask(mask)
	return ids, 0, mask
}

func (x *harmonyTable) mayEnd(mask []uint32) bool {
	return slices.ContainsFunc(x.ends, func(id int32) bool { return mask[id/32]>>(id%32)&1 == 1 })
}

// passes checks that the grammar accepts the text.
func (x *harmonyTable) passes(text string) {
	x.t.Helper()
	if _, left, _ := x.state(text); left > 0 {
		x.t.Errorf("%s: %q is refused %d tokens before its end", x.name, text, left)
	}
}

// stops checks that the grammar refuses the text, or an end after it.
func (x *harmonyTable) stops(text string) {
	x.t.Helper()
	if _, left, mask := x.state(text); left == 0 && x.mayEnd(mask) {
		x.t.Errorf("%s: %q is taken", x.name, text)
	}
}

// refuses checks that the reply cannot end after the text.
func (x *harmonyTable) refuses(text string) { x.t.Helper(); x.stops(text) }

// gives checks that the grammar accepts the text and an end after it, and that the parser
// returns this message.
func (x *harmonyTable) gives(text, content string, calls ...dialect.Call) {
	x.t.Helper()
	ids, left, mask := x.state(text)
	if left > 0 || !x.mayEnd(mask) {
		x.t.Errorf("%s: %q is refused %d tokens before its end", x.name, text, left)
		return
	}
	m := readTokens(x.t, x.s, x.r, x.prompt, ids)
	for i := range m.Calls {
		m.Calls[i].ID = ""
	}
	if m.Content != content || !slices.Equal(m.Calls, calls) {
		x.t.Errorf("%s: %q is read as content %q and calls %v", x.name, text, m.Content, m.Calls)
	}
}

// readTokens parses a reply with the parser of its request.
func readTokens(t *testing.T, s *Service, r *Request, prompt string, ids []int32) (m dialect.Message) {
	t.Helper()
	g, _, err := s.compileGrammar(context.Background(), r, &Run{Role: "assistant", Prompts: []EncodedPrompt{{text: prompt}}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.newReplyParser(r, &Run{Role: "assistant", grammar: g}, &EncodedPrompt{text: prompt})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if marker := p.marker(id); marker != "" {
			m.Add(p.parser.Mark(marker)...)
		} else {
			m.Add(p.parser.Feed(string(s.cfg.Vocabulary.TokenBytes(id)))...)
		}
	}
	last, _ := p.parser.Finish("stop")
	m.Add(last...)
	return m
}

// TestHarmonyPrompts checks that a reply continues the message at the end of its prompt.
func TestHarmonyPrompts(t *testing.T) {
	s, tok, ends := stopping(t)
	object := toolRequest("openai_gptoss", "openai", dialect.None)
	object.params.Structure = &structured.Constraint{Kind: structured.JSONObject}
	required := toolRequest("openai_gptoss", "openai", dialect.Required)
	for _, c := range []struct {
		r         *Request
		prompt    string
		good, bad []string
	}{
		{object, "<|start|>user<|message|>hi<|end|>", []string{"<|start|>assistant<|channel|>final<|message|>{}"}, []string{"{}", "<|start|>assistant{}"}},
		{object, "<|start|>assistant<|channel|>", []string{"final<|message|>{}", "final json<|message|>{}", "analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>{}"}, []string{"final<|message|>a", "commentary<|message|>{}"}},
		{object, "<|start|>assistant<|channel|>fin", []string{"al<|constrain|>json<|message|>{}"}, []string{"analysis<|message|>a"}},
		{object, "<|start|>assistant<|channel|>final <|constrain|>json", []string{"<|message|>{}"}, []string{"{}"}},
		{object, "<|start|>assistant<|channel|>final<|message|>", []string{"{}"}, []string{"a", "<|channel|>final<|message|>{}"}},
		{object, "<|start|>assistant<|channel|>analysis<|message|>hm", []string{" so<|end|><|start|>assistant<|channel|>final<|message|>{}"}, []string{" so", "<|channel|>final<|message|>{}"}},
		{required, "<|start|>assistant to=functions.", []string{"clock<|channel|>commentary json<|message|>{}"}, []string{"sun<|channel|>commentary json<|message|>{}"}},
		{required, "<|start|>assistant<|channel|>commentary<|message|>I look.", []string{"<|end|><|start|>assistant to=functions.clock<|channel|>commentary json<|message|>{}"}, []string{"", " Well."}},
	} {
		x := &harmonyTable{t, s, tok, ends, c.r, c.prompt, c.prompt}
		for _, text := range c.good {
			if _, left, mask := x.state(text); left > 0 || !x.mayEnd(mask) {
				t.Errorf("%s: %q is refused %d tokens before its end", c.prompt, text, left)
			}
		}
		for _, text := range c.bad {
			x.stops(text)
		}
	}
	for _, prompt := range []string{"<|start|>user", "<|start|>assistant to=functions.clock<|channel|>commentary<|message|>{", "<|start|>assistant<|channel|>commentary"} {
		_, _, err := s.compileGrammar(context.Background(), object, &Run{Role: "assistant", Prompts: []EncodedPrompt{{text: prompt}}})
		if e := AsError(err); err == nil || e.Kind != Invalid || !strings.Contains(e.Message, "ends within a message") {
			t.Errorf("%s: %v", prompt, err)
		}
	}
}

// TestHarmonyReplies checks that constrained replies drawn at random parse as one object.
func TestHarmonyReplies(t *testing.T) {
	s, tok, ends := stopping(t)
	r := toolRequest("openai_gptoss", "openai", dialect.None)
	r.params.Structure = schemaOf(`{"type":"object","properties":{"a":{"type":"string","maxLength":4}},"required":["a"],"additionalProperties":false}`)
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 3))
		st := started(t, s, r, "<|start|>assistant")
		ids, ended := draw(t, st, ends[0], -1, nil, random)
		m := readTokens(t, s, r, "<|start|>assistant", ids)
		var v struct{ A *string }
		if err := json.Unmarshal([]byte(m.Content), &v); err != nil || v.A == nil || !ended || len(m.Calls) > 0 {
			text, _ := tok.Decode(ids, false)
			t.Errorf("seed %d: %q gives %+v, %v", seed, text, m, err)
		}
	}
}
