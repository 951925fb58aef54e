//go:build cgo

package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/grammar"
	"vapp.dev/engine/tokenizer"
)

// constrained are the grammars of a mixed load, with what says that a reply follows
// them.
var constrained = []struct {
	spec grammar.Spec
	ok   func(reply string) bool
}{
	{grammar.Spec{Kind: tokenizer.GrammarJSONSchema, Source: `{"type":"object","properties":{"a":{"type":"string","maxLength":4},"n":{"type":"integer","minimum":0,"maximum":99}},"required":["a","n"],"additionalProperties":false,"x-guidance":{"whitespace_flexible":false}}`},
		func(reply string) bool {
			var v struct {
				A *string
				N *int
			}
			return json.Unmarshal([]byte(reply), &v) == nil && v.A != nil && v.N != nil && *v.N >= 0 && *v.N <= 99
		}},
	{grammar.Spec{Kind: tokenizer.GrammarRegex, Source: `[0-9]{2}-(north|south)`}, regexp.MustCompile(`^[0-9]{2}-(north|south)$`).MatchString},
	{grammar.Spec{Kind: tokenizer.GrammarChoice, Source: `["yes","no, never"]`}, func(s string) bool { return s == "yes" || s == "no, never" }},
	{grammar.Spec{Kind: tokenizer.GrammarLark, Source: "start: \"<\" word{1,3} \">\"\nword: /[a-z]{1,3}/ \";\""}, regexp.MustCompile(`^<([a-z]{1,3};){1,3}>$`).MatchString},
}

// Random weights say what the grammar lets them, alone and together, in both forms of the
// loop, with pages for one sequence alone, and always the same.
func TestGrammars(t *testing.T) {
	cfg := checkpoint.Config{VocabSize: 320}
	b, err := checkpoint.SyntheticTokenizer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(b, tokenizer.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tok.Close()
	c := grammar.NewCompiler(tok, 320, []int32{319})
	var want []string
	for _, form := range []struct {
		overlap bool
		slabs   int
	}{{false, 16}, {true, 16}, {true, least}} {
		y := newToy(t)
		y.opts.Overlap, y.slabs = form.overlap, form.slabs
		e := y.open(t)
		got := replies(t, e, c, tok)
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: got %q, want %q", form, got, want)
		}
		if err := e.Check(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// replies are those of 24 requests at once, half of them free, each held against its
// grammar.
func replies(t *testing.T, e *engine.Engine, c *grammar.Compiler, tok *tokenizer.Tokenizer) []string {
	t.Helper()
	var streams []*engine.Stream
	for i := range 24 {
		r := request(i)
		r.ID, r.N = fmt.Sprint("g", i), 1
		if i%2 == 0 {
			g, err := c.Compile(context.Background(), constrained[i/2%len(constrained)].spec)
			if err != nil {
				t.Fatal(err)
			}
			r.Grammar, r.Params.MaxTokens, r.Params.Logprobs = g, 60, i/2%2-1
			r.Params.Repetition, r.Params.Frequency = 1, 0
		}
		s, err := e.Submit(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s...)
	}
	var out []string
	for i, s := range streams {
		ids, last := collect(t, s)
		text, err := tok.Decode(ids, true)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, text)
		if w := constrained[i/2%len(constrained)]; i%2 == 0 && (last.Finish != engine.FinishStop || !w.ok(text)) {
			t.Errorf("%s: %q ends by %v (%v)", w.spec.Kind, text, last.Finish, last.Err)
		}
	}
	return out
}
