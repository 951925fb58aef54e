//go:build cgo

package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/appliance/chat/structured"
	"vapp.dev/appliance/chat/structured/structuredtest"
	"vapp.dev/engine"
	"vapp.dev/engine/grammar"
	"vapp.dev/engine/tokenizer"
)

// marked returns a service whose vocabulary is bytes and the markers of all dialects: as
// special tokens, or as characters only.
func marked(t testing.TB, special bool) (*Service, *tokenizer.Tokenizer, int32) {
	t.Helper()
	tok, specialIDs := structuredtest.Tokenizer(t, special)
	s := &Service{cfg: Config{Vocabulary: tok, Grammars: grammar.NewCompiler(tok, tok.VocabSize(), []int32{structuredtest.EOS})}}
	s.marks, s.markers = markerIDs(tok)
	s.special = specials(tok, s.markers)
	if !maps.Equal(s.special, specialIDs) {
		t.Fatalf("special tokens %v, want %v", s.special, specialIDs)
	}
	return s, tok, structuredtest.EOS
}

const (
	weather = `{"type":"function","function":{"name":"weather","strict":true,"parameters":{"type":"object","properties":{"city":{"type":"string","maxLength":4},"n":{"type":"integer","minimum":0,"maximum":9}},"required":["city","n"],"additionalProperties":false}}}`
	clock   = `{"type":"function","function":{"name":"clock","strict":true,"parameters":{"type":"object","properties":{},"additionalProperties":false}}}`
)

func toolRequest(reasoning, tools, choice string) *Request {
	a := RequestParams{Chat: &Conversation{Tools: []json.RawMessage{json.RawMessage(weather), json.RawMessage(clock)}}, ToolChoice: choice}
	if choice == dialect.Named {
		a.ToolName = "weather"
	}
	return &Request{params: a, settings: &Settings{Reasoning: reasoning, Tools: tools, AutoToolChoice: true}}
}

// follow takes ids with the grammar of a request, as structuredtest.Follow does.
func follow(t *testing.T, s *Service, r *Request, ids []int32) int {
	t.Helper()
	return structuredtest.Follow(t, started(t, s, r, "<|start|>assistant"), ids)
}

// started returns the state of a request's grammar at the start of a reply to the prompt.
func started(t *testing.T, s *Service, r *Request, prompt string) *grammar.State {
	t.Helper()
	run := &Run{Role: "assistant", Prompts: []EncodedPrompt{{text: prompt}}}
	g, whole, err := s.compileGrammar(context.Background(), r, run)
	if err != nil || g == nil {
		t.Fatal("no grammar: ", err)
	}
	run.whole = whole
	st, err := g.Begin(s.lead(r, run, &run.Prompts[0]), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	return st
}

// callTexts holds replies of each dialect that its grammar accepts (good) and refuses (bad).
var callTexts = []struct {
	reasoning, tools, choice string
	good, bad                []string
}{
	{"qwen3", "hermes", dialect.Auto, []string{"<tool_call> no </think>Hello."}, []string{"</think><tool_call> no"}},
	{"", "hermes", dialect.Auto,
		[]string{
			"Hello.", "so <tool_cal",
			"Well: <tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"n\": 3}}\n</tool_call> and\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>.",
		},
		[]string{"<tool_call>\n{\"name\": \"sun\", \"arguments\": {}}\n</tool_call>", "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>", "<tool_call> no"}},
	{"", "qwen3_coder", dialect.Auto,
		[]string{"Hello.", "<tool_call>\n<function=weather>\n<parameter=city>\nNew\nYork\n</parameter>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>", "<tool_call>\n<function=clock>\n</function>\n</tool_call>"},
		[]string{"<tool_call>\n<function=weather>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>", "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=n>\nmany"}},
	{"", "llama3_json", dialect.Auto,
		[]string{"Hello.", `{"name": "weather", "parameters": {"city": "Rome", "n": 3}}; {"name": "clock", "parameters": {}}`},
		[]string{`{"name": "sun"`, `{"name": "weather", "parameters": {}}`, `So {"name"`}},
	{"", "mistral", dialect.Auto,
		[]string{"Hello."},
		[]string{`[TOOL_CALLS][{"name": "sun"`, `[TOOL_CALLS]weather[ARGS]{}`, `[TOOL_CALLS] no`}},
	{"openai_gptoss", "openai", dialect.Auto,
		[]string{
			"<|channel|>final<|message|>Hello.",
			"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Rome\", \"n\": 3}",
		},
		[]string{"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{}", "<|channel|>commentary to=functions.sun", "<|channel|>thoughts"}},
	{"openai_gptoss", "openai", dialect.Required,
		[]string{"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.clock <|constrain|>json<|message|>{}"},
		[]string{"<|channel|>final<|message|>Hello.", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final"}},
	{"openai_gptoss", "openai", dialect.Named,
		[]string{"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"\", \"n\": 0}"},
		[]string{"<|channel|>commentary to=functions.clock"}},
}

func TestCallGrammars(t *testing.T) {
	for _, special := range []bool{true, false} {
		s, tok, _ := marked(t, special)
		for _, c := range callTexts {
			r := toolRequest(c.reasoning, c.tools, c.choice)
			for i, text := range append(c.good, c.bad...) {
				ids, err := tok.Encode(text, false)
				if err != nil {
					t.Fatal(err)
				}
				if !special && c.tools == "mistral" && strings.Contains(text, "[ARGS]") {
					continue
				}
				at := follow(t, s, r, ids)
				if good := i < len(c.good); good != (at < 0) {
					rest, _ := tok.Decode(ids[max(at, 0):], false)
					t.Errorf("special %v, %s %s: good %v, stops at %d, before %.20q of %q", special, c.tools, c.choice, good, at, rest, text)
				}
			}
		}
	}
	s, tok, _ := marked(t, true)
	ids, _ := tok.Encode("So: [TOOL_CALLS]weather[ARGS]{\"city\": \"Rome\", \"n\": 3}[TOOL_CALLS]clock[ARGS]{}", false)
	if at := follow(t, s, toolRequest("", "mistral", dialect.Auto), ids); at >= 0 {
		t.Errorf("mistral with [ARGS] stops at %d", at)
	}
	s, tok, _ = marked(t, false)
	ids, _ = tok.Encode("So: [TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"n\": 3}}, {\"name\": \"clock\", \"arguments\": {}}]", false)
	if at := follow(t, s, toolRequest("", "mistral", dialect.Auto), ids); at >= 0 {
		t.Errorf("mistral without [ARGS] stops at %d", at)
	}
}

// TestForcedCalls draws replies at random from the grammar of a forced tool_choice, in every
// dialect, after reasoning where the dialect has it. Each must parse as calls of declared
// functions whose arguments follow their schemas.
func TestForcedCalls(t *testing.T) {
	for _, special := range []bool{true, false} {
		s, tok, eos := marked(t, special)
		for _, tool := range dialect.Tools() {
			tools := tool.Name
			for _, choice := range []string{dialect.Required, dialect.Named} {
				for _, reasoning := range []string{"", "qwen3", "deepseek_r1", "gemma4", "openai_gptoss"} {
					if dialect.Check(reasoning, tools) != nil || !special && dialect.Harmony(reasoning, tools) {
						continue
					}
					for seed := range uint64(4) {
						name := fmt.Sprintf("special %v, %s behind %q, %s, seed %d", special, tools, reasoning, choice, seed)
						forcedCall(t, name, s, tok, eos, toolRequest(reasoning, tools, choice), rand.New(rand.NewPCG(seed, 7)))
					}
				}
			}
		}
	}
}

func forcedCall(t *testing.T, name string, s *Service, tok *tokenizer.Tokenizer, eos int32, r *Request, random *rand.Rand) {
	t.Helper()
	set := r.settings
	st := started(t, s, r, "<|start|>assistant")
	var ids []int32
	thought := dialect.Before(dialect.Options{Reasoning: set.Reasoning, Tools: set.Tools})
	if thought.Inside && !dialect.Harmony(set.Reasoning, set.Tools) {
		ids, _ = tok.Encode("Hm, so "+thought.Ends[0], false)
		for _, id := range ids {
			if _, _, err := st.Take(id); err != nil {
				t.Fatal(name, err)
			}
		}
	}
	end, _ := tok.Encode(append(thought.Ends, "")[0], false)
	open := int32(-1)
	if id, is := s.markers[thought.Open]; is {
		open = id
	}
	said, ended := draw(t, st, eos, open, end, random)
	text, err := tok.Decode(append(ids, said...), false)
	if err != nil || !ended {
		t.Errorf("%s: %q does not end: %v", name, text, err)
		return
	}
	m, _, err := dialect.Parse(dialect.Options{
		Reasoning: set.Reasoning, Tools: set.Tools, Choice: r.params.ToolChoice, Function: r.params.ToolName, Functions: r.params.Chat.Tools, Constrained: true,
	}, text, "stop")
	if err != nil || len(m.Calls) == 0 || m.Content != "" {
		t.Errorf("%s: %q gives %+v, %v", name, text, m, err)
	}
	for _, c := range m.Calls {
		if err := obeys(c); err != nil {
			t.Errorf("%s: %q: %v", name, text, err)
		}
	}
}

// draw takes random tokens that the mask allows, and ends as soon as the mask allows the
// end. Reasoning, which the token open begins, it ends at once.
func draw(t *testing.T, st *grammar.State, eos, open int32, end []int32, random *rand.Rand) (ids []int32, ended bool) {
	t.Helper()
	mask := make([]uint32, 64)
	for len(ids) < 4000 {
		if len(ids) > 0 && ids[len(ids)-1] == open {
			for _, id := range end {
				if _, _, err := st.Take(id); err != nil {
					t.Fatal(err)
				}
			}
			ids = append(ids, end...)
		}
		st.Mask(mask)
		var may []int32
		for id := range int32(32 * len(mask)) {
			if mask[id/32]>>(id%32)&1 == 1 {
				may = append(may, id)
			}
		}
		if len(may) == 0 || mask[eos/32]>>(eos%32)&1 == 1 {
			return ids, len(may) > 0
		}
		id := may[random.IntN(len(may))]
		// prefer special tokens and quotes, without which a random reply would rarely end
		for _, m := range may {
			if (m > 256 || m == '"' || m == '}' || m == ']') && random.IntN(8) == 0 {
				id = m
			}
		}
		_, over, err := st.Take(id)
		if err != nil {
			t.Fatal(err)
		}
		if ids = append(ids, id); over {
			return ids, true
		}
	}
	return ids, false
}

// obeys checks a call against the schema of its function.
func obeys(c dialect.Call) error {
	d := json.NewDecoder(strings.NewReader(c.Arguments))
	d.DisallowUnknownFields()
	switch c.Name {
	case "clock":
		return d.Decode(&struct{}{})
	case "weather":
		var v struct {
			City *string
			N    *int
		}
		if err := d.Decode(&v); err != nil || v.City == nil || v.N == nil || *v.N < 0 || *v.N > 9 || len([]rune(*v.City)) > 4 {
			return fmt.Errorf("arguments %s: %w", c.Arguments, err)
		}
		return nil
	}
	return errors.New("there is no function " + c.Name)
}

// TestGrammarMemory checks that a grammar for which other grammars leave no memory is an
// overload, and that one too large for the whole memory is the request's fault.
func TestGrammarMemory(t *testing.T) {
	a := &RequestParams{Structure: &structured.Constraint{Param: "response_format"}}
	for err, want := range map[error]Kind{
		grammar.ErrBusy: Overloaded,
		fmt.Errorf("%w: %w", engine.ErrGrammar, grammar.ErrBusy):                        Overloaded,
		fmt.Errorf("%w: %w", engine.ErrGrammar, &grammar.Error{Kind: "a", Text: "big"}): Invalid,
	} {
		if got := AsError(a.requestError(err)); got.Kind != want || got.Param != "response_format" {
			t.Errorf("%v: %+v", err, got)
		}
	}
}
