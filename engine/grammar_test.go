//go:build cgo

package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"runtime"
	"slices"
	"testing"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/grammar"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/tokenizer"
)

// constrained are the grammars of a mixed load, each with a function that checks its replies.
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

// compiler returns a grammar compiler for a vocabulary of bytes and an EOS, 319.
func compiler(t *testing.T) (*grammar.Compiler, *tokenizer.Tokenizer) {
	t.Helper()
	b, err := checkpoint.SyntheticTokenizer(checkpoint.Config{VocabSize: 320})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(b, tokenizer.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tok.Close)
	return grammar.NewCompiler(tok, 320, []int32{319}), tok
}

// TestGrammars: a model with random weights follows its grammars, alone and together, with and without
// overlap, with pages for one sequence only, recomputed or swapped, and with proposals. The replies
// are always the same.
func TestGrammars(t *testing.T) {
	c, tok := compiler(t)
	var want []string
	for _, form := range []struct {
		name   string
		change func(*toy)
	}{
		{"plain", func(y *toy) { y.opts.Overlap = false }},
		{"overlapped", func(*toy) {}},
		{"preempted", func(y *toy) { y.slabs = least }},
		{"swapped", func(y *toy) { y.slabs, y.opts.SwapBytes = least, 64<<20 }},
		{"n-grams proposed", func(y *toy) { y.opts.Overlap = false; ngrams(3)(y) }},
	} {
		y := newToy(t)
		form.change(y)
		e := y.open(t)
		got := replies(t, e, c, tok, 24)
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", form.name, got, want)
		}
		if s := e.Stats(); s.Preemptions == 0 && y.slabs < 16 {
			t.Errorf("%s: nobody was preempted", form.name)
		}
		if err := e.Check(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// TestGrammarEnds: a reply under a grammar ends like any other: by max_tokens, not before min_tokens if
// the grammar continues, by a stop token, or by EOS. EOS is a token of the reply even if the grammar
// allows nothing else. Each choice follows the grammar independently.
func TestGrammarEnds(t *testing.T) {
	c, tok := compiler(t)
	y := newToy(t)
	e := y.open(t)
	for _, k := range []struct {
		name, regex string
		change      func(*sample.Params)
		want        string // of the reply's text
		finish      engine.Finish
		tokens      int // 0: any number
	}{
		{"cut", "abcdef[0-9]{9}", func(p *sample.Params) { p.MaxTokens = 8 }, "^abcdef[0-9]{2}$", engine.FinishLength, 8},
		{"cut within what is forced", "abcdef", func(p *sample.Params) { p.MaxTokens = 3 }, "^abc$", engine.FinishLength, 3},
		{"the longest", "abcdef", func(p *sample.Params) { p.MaxTokens = 6 }, "^abcdef$", engine.FinishLength, 6},
		{"one more", "abcdef", func(p *sample.Params) { p.MaxTokens = 7 }, "^abcdef$", engine.FinishStop, 7},
		{"min_tokens", "[ab]*", func(p *sample.Params) { p.MinTokens, p.MaxTokens, p.IgnoreEOS = 20, 60, false }, "^[ab]{20,60}$", engine.NotFinished, 0},
		{"min_tokens of more than there is", "ab", func(p *sample.Params) { p.MinTokens = 20 }, "^ab$", engine.FinishStop, 3},
		{"end of text ignored", "a?", func(p *sample.Params) { p.IgnoreEOS = true }, "^a?$", engine.FinishStop, 0},
		{"a drawn end of text ignored", "a?", func(p *sample.Params) { p.IgnoreEOS, p.AllowedTokenIDs = true, []int32{319} }, "^$", engine.FinishStop, 1},
		{"a stop token", "[x]{9}", func(p *sample.Params) { p.StopTokenIDs = []int32{byteID(t, tok, "x")} }, "^x$", engine.FinishStop, 1},
		{"the end beside allowed tokens", "ab", func(p *sample.Params) { p.AllowedTokenIDs = []int32{byteID(t, tok, "a"), byteID(t, tok, "b")} }, "^ab$", engine.FinishStop, 3},
		{"no end of text", "ab", func(p *sample.Params) { p.EOS = nil }, "^ab$", engine.FinishStop, 2},
		{"an end that is not the tokenizer's", "ab", func(p *sample.Params) { p.EOS = []int32{-1, 319} }, "^ab$", engine.FinishStop, 3},
		{"drawn for logprobs", "abcdef", func(p *sample.Params) { p.Logprobs = 0 }, "^abcdef$", engine.FinishStop, 7},
	} {
		g, err := c.Compile(context.Background(), grammar.Spec{Kind: tokenizer.GrammarRegex, Source: k.regex})
		if err != nil {
			t.Fatal(err)
		}
		r := request(1)
		r.N, r.Grammar, r.Params = 3, g, sample.Default()
		r.Params.EOS, r.Params.MaxTokens, r.Params.Seed, r.Params.HasSeed, r.Params.Logprobs = []int32{319}, 40, 5, true, -1
		k.change(&r.Params)
		streams, err := e.Submit(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range streams {
			ids, last := collect(t, s)
			if k.tokens > 0 && len(ids) != k.tokens {
				t.Errorf("%s, choice %d: %d tokens, want %d", k.name, i, len(ids), k.tokens)
			}
			own := len(r.Params.EOS) > 0 && r.Params.EOS[0] == 319
			if ended := last.Token == 319; ended && (last.StopToken < 0) != own || slices.Contains(ids[:len(ids)-1], 319) {
				t.Errorf("%s, choice %d: %v ends with %d, stop token %d", k.name, i, ids, last.Token, last.StopToken)
			}
			ids = slices.DeleteFunc(ids, func(id int32) bool { return id == 319 })
			text, _ := tok.Decode(ids, false)
			if !regexp.MustCompile(k.want).MatchString(text) || k.finish != engine.NotFinished && last.Finish != k.finish {
				t.Errorf("%s, choice %d: %q ends by %v (%v)", k.name, i, text, last.Finish, last.Err)
			}
		}
	}
}

func byteID(t *testing.T, tok *tokenizer.Tokenizer, text string) int32 {
	t.Helper()
	ids, err := tok.Encode(text, false)
	if err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	return ids[0]
}

// TestGrammarLogprobs: the mask is applied before the raw logprobs. Allowed tokens have all of the
// probability, before a bias and a temperature; a forced token has a logprob of 0.
func TestGrammarLogprobs(t *testing.T) {
	c, tok := compiler(t)
	e := newToy(t).open(t)
	g, err := c.Compile(context.Background(), grammar.Spec{Kind: tokenizer.GrammarRegex, Source: "[01]{8}ok"})
	if err != nil {
		t.Fatal(err)
	}
	one := byteID(t, tok, "1")
	r := request(0)
	r.N, r.Grammar, r.Params = 1, g, sample.Default()
	r.Params.MaxTokens, r.Params.Logprobs, r.Params.Temperature, r.Params.EOS = 20, 2, 0, []int32{319}
	r.Params.LogitBias = []sample.Bias{{Token: one, Value: 100}}
	streams, err := e.Submit(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for {
		evs, err := streams[0].Next(context.Background())
		if err != nil || len(evs) == 0 {
			break
		}
		for _, ev := range evs {
			if ev.Token < 0 {
				continue
			}
			if n++; ev.Logprob == nil {
				t.Fatalf("token %d has no logprob", n)
			}
			sum := 0.0
			for _, top := range ev.Logprob.Top[:2] {
				sum += math.Exp(float64(top.Logprob))
			}
			if math.Abs(sum-1) > 1e-4 {
				t.Errorf("token %d: the two best have %v: %+v", n, sum, ev.Logprob)
			}
			if n == 11 && (ev.Token != 319 || ev.Logprob.Rank != 1 || len(ev.Logprob.Top) != 2 || ev.Logprob.Top[0].Token != 319 ||
				ev.Logprob.Top[1] != engine.TopLogprob{Logprob: float32(math.Inf(-1))}) {
				t.Errorf("the end: %+v", ev)
			}
			if n <= 8 && ev.Token != one || n > 8 && ev.Logprob.Logprob != 0 {
				t.Errorf("token %d is %d: %+v", n, ev.Token, ev.Logprob)
			}
		}
	}
	if n != 11 {
		t.Errorf("%d tokens", n)
	}
}

// replies returns those of 24 requests at once, half of them unconstrained, after checking each
// against its grammar.
func replies(t *testing.T, e *engine.Engine, c *grammar.Compiler, tok *tokenizer.Tokenizer, n int) []string {
	t.Helper()
	var streams []*engine.Stream
	for i := range n {
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

// TestGrammarMemory: a request whose grammar states exceed the memory limit is refused: with its
// grammar's error if it is alone, as busy if others run. Replies that end free their memory.
func TestGrammarMemory(t *testing.T) {
	c, _ := compiler(t)
	e := newToy(t).open(t)
	g, err := c.Compile(t.Context(), grammar.Spec{Kind: tokenizer.GrammarRegex, Source: "abc"})
	if err != nil {
		t.Fatal(err)
	}
	one, r := c.Used(), request(1)
	r.N, r.Grammar, r.Params = 2, g, sample.Default()
	r.Params.EOS, r.Params.MaxTokens = []int32{319}, 8
	s, err := g.Begin(grammar.Preamble{}, true)
	if err != nil {
		t.Fatal(err)
	}
	c.Limit(2*c.Used() - one) // the grammar and two states
	if _, err := e.Submit(t.Context(), r); !errors.Is(err, grammar.ErrBusy) {
		t.Errorf("two states beside another: %v", err)
	}
	r.N = 3
	var alone *grammar.Error
	if _, err := e.Submit(t.Context(), r); !errors.Is(err, engine.ErrGrammar) || !errors.As(err, &alone) {
		t.Errorf("three states: %v", err)
	}
	s.Close()
	released(t, c, one)
	c.Limit(0)
	streams, err := e.Submit(t.Context(), r)
	if err != nil || c.Used() <= one {
		t.Fatalf("%d bytes are in use: %v", c.Used(), err)
	}
	for _, s := range streams {
		collect(t, s)
	}
	released(t, c, one)
}

// released waits until exactly that many bytes of grammars are in use.
func released(t *testing.T, c *grammar.Compiler, want int64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); c.Used() != want; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are in use, want %d", c.Used(), want)
		}
	}
}
