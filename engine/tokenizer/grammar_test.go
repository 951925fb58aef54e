//go:build cgo

package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"sync"
	"testing"
)

func grammars(t testing.TB) (*Tokenizer, *GrammarEnv) {
	t.Helper()
	tok := small(t, "bytelevel")
	end, _ := tok.ID("<|im_end|>")
	g, err := NewGrammarEnv(tok, GrammarOptions{VocabSize: tok.VocabSize() + 7, EOS: []int32{end}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return tok, g
}

// accepts follows a text through the grammar token by token, checks that the mask allows each, and
// reports whether EOS may follow.
func accepts(t *testing.T, tok *Tokenizer, g *GrammarEnv, spec GrammarSpec, text string) bool {
	t.Helper()
	m, err := g.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids, err := tok.Encode(text, false)
	if err != nil {
		t.Fatal(err)
	}
	mask := make([]uint32, g.MaskWords())
	end, _ := tok.ID("<|im_end|>")
	for _, id := range append(ids, end) {
		if m.Done() {
			return id == end
		}
		if err := m.Mask(mask); err != nil {
			t.Fatal(err)
		}
		n, err := m.Accepts([]int32{id})
		if err != nil {
			t.Fatal(err)
		}
		allowed := mask[id/32]>>(id%32)&1 == 1
		if allowed != (n == 1) {
			t.Fatalf("%q: id %d: mask %v, accepts %d", text, id, allowed, n)
		}
		if !allowed {
			return false
		}
		if err := m.Advance(id); err != nil {
			t.Fatal(err)
		}
	}
	return m.Done()
}

func TestGrammars(t *testing.T) {
	tok, g := grammars(t)
	schema := `{"type":"object","properties":{"name":{"type":"string"},"n":{"type":"integer","minimum":0}},"required":["name","n"],"additionalProperties":false}`
	for _, c := range []struct {
		spec      GrammarSpec
		good, bad []string
	}{
		{GrammarSpec{GrammarJSONSchema, schema}, []string{`{"name":"a 🙂 é","n":42}`, `{"name": "", "n": 0}`},
			[]string{`{"name":1}`, `{"n":1,"name":"a"}`, `{"name":"a","n":-1}`, `{"name":"a"}`, `[]`, ``, `{"name":"a","n":1}}`}},
		{GrammarSpec{GrammarJSONObject, ""}, []string{`{}`, `{"a":[1,{"b":null}]}`}, []string{`[1]`, `1`, `{"a"}`}},
		{GrammarSpec{GrammarRegex, `[0-9]{4}-[0-9]{2}|never`}, []string{"2024-07", "never"}, []string{"2024-7", "x", "2024-077", "neve"}},
		{GrammarSpec{GrammarChoice, `["yes","no","it's \"so\"\n"]`}, []string{"yes", "no", "it's \"so\"\n"}, []string{"y", "maybe", "yesno", ""}},
		{GrammarSpec{GrammarLark, "start: \"a\" b+\nb: /[bc]/ \"!\""}, []string{"ab!", "ac!b!"}, []string{"a", "b!", "ab"}},
	} {
		for _, text := range c.good {
			if !accepts(t, tok, g, c.spec, text) {
				t.Errorf("%s %s refuses %q", c.spec.Kind, c.spec.Source, text)
			}
		}
		for _, text := range c.bad {
			if accepts(t, tok, g, c.spec, text) {
				t.Errorf("%s %s takes %q", c.spec.Kind, c.spec.Source, text)
			}
		}
	}
}

func TestGrammarRefused(t *testing.T) {
	_, g := grammars(t)
	for _, s := range []GrammarSpec{
		{"sonnet", ""}, {GrammarRegex, "(("}, {GrammarRegex, "(?=a)b"}, {GrammarJSONSchema, "{"}, {GrammarJSONSchema, `{"type":"colour"}`},
		{GrammarJSONSchema, `{"not":{"type":"string"}}`}, {GrammarJSONSchema, `{"type":"array","uniqueItems":true}`},
		{GrammarChoice, "[]"}, {GrammarChoice, `{"a":1}`}, {GrammarLark, "start: nope"}, {GrammarLark, "\x00"},
		{GrammarJSONSchema, strings.Repeat(`{"not":`, 100_000)}, {GrammarRegex, strings.Repeat("(", 300_000)}, {GrammarLark, strings.Repeat("x", 1<<20+1)},
	} {
		m, err := g.Compile(s)
		var e *Error
		if err == nil {
			m.Close()
		}
		if !errors.As(err, &e) || e.Kind != KindGrammar || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s %.40q: %v", s.Kind, s.Source, err)
		}
	}
}

// TestGrammarChain compiles the longest possible chain of rules, which takes one stack frame per
// rule.
func TestGrammarChain(t *testing.T) {
	_, g := grammars(t)
	var b strings.Builder
	b.WriteString("start: a0\n")
	n := 0
	for ; b.Len() < maxGrammar-40; n++ {
		fmt.Fprintf(&b, "a%x: a%x\n", n, n+1)
	}
	fmt.Fprintf(&b, "a%x: \"x\"\n", n)
	m, err := g.Compile(GrammarSpec{GrammarLark, b.String()})
	if err == nil {
		m.Close()
	}
	var e *Error
	if err != nil && (!errors.As(err, &e) || e.Kind != KindGrammar) {
		t.Errorf("got %v, want nil or KindGrammar", err)
	}
}

func TestGrammarEnvRefused(t *testing.T) {
	tok := small(t, "bytelevel")
	for _, o := range []GrammarOptions{{}, {EOS: []int32{100_000}}, {EOS: []int32{-1}}, {VocabSize: 1 << 30, EOS: []int32{1}}} {
		if g, err := NewGrammarEnv(tok, o); err == nil {
			g.Close()
			t.Errorf("%+v is taken", o)
		}
	}
	if _, err := NewGrammarEnv(small(t, "wordpiece"), GrammarOptions{EOS: []int32{2}}); err == nil {
		t.Error("a tokenizer without token bytes is taken")
	}
}

func TestMatcher(t *testing.T) {
	tok, g := grammars(t)
	m, err := g.Compile(GrammarSpec{GrammarChoice, `["abcd","abxy"]`})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	forced, err := m.Forced()
	if text, _ := tok.Decode(forced, false); err != nil || !strings.HasPrefix("ab", text) {
		t.Errorf("forced %q, %v", text, err)
	}
	id := func(s string) int32 {
		i, ok := tok.ID(s)
		if !ok {
			t.Fatalf("no token %q", s)
		}
		return i
	}
	if err := m.Advance(id("a"), id("b")); err != nil {
		t.Fatal(err)
	}
	twin, err := m.Clone()
	if err != nil {
		t.Fatal(err)
	}
	defer twin.Close()
	if err := m.Advance(id("x")); err != nil {
		t.Fatal(err)
	}
	if err := m.Rollback(1); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Matcher{m, twin} {
		if n, err := m.Accepts([]int32{id("c"), id("d"), id("e")}); err != nil || n != 2 {
			t.Errorf("accepts %d, %v", n, err)
		}
	}
	if ok, err := twin.Accepting(); err != nil || ok {
		t.Errorf("accepting %v, %v", ok, err)
	}
	if err := twin.Advance(id("e")); err == nil {
		t.Error("a token that is not allowed is taken")
	}
	if err := m.Advance(id("c"), id("d")); err != nil || !m.Done() {
		t.Errorf("done %v, %v", m.Done(), err)
	}
	mask := make([]uint32, g.MaskWords())
	if err := m.Mask(mask); err != nil {
		t.Fatal(err)
	}
	set := 0
	for _, w := range mask {
		set += bits.OnesCount32(w)
	}
	if end := id("<|im_end|>"); set != 1 || mask[end/32]>>(end%32)&1 != 1 {
		t.Errorf("at the end %d ids may come", set)
	}
	var e *Error
	if err := m.Mask(mask[:1]); !errors.As(err, &e) || e.Kind != KindArgument {
		t.Errorf("a short mask: %v", err)
	}
}

// TestMaskPadding checks that ids beyond the tokenizer's vocabulary, which pad the logits, are
// never allowed.
func TestMaskPadding(t *testing.T) {
	tok, g := grammars(t)
	if g.VocabSize() != tok.VocabSize()+7 {
		t.Fatalf("%d ids", g.VocabSize())
	}
	m, err := g.Compile(GrammarSpec{GrammarRegex, `(?s:.*)`})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	mask := make([]uint32, g.MaskWords()+2)
	mask[len(mask)-1] = ^uint32(0)
	if err := m.Mask(mask); err != nil {
		t.Fatal(err)
	}
	for id := tok.VocabSize(); id < 32*len(mask); id++ {
		if mask[id/32]>>(id%32)&1 == 1 {
			t.Errorf("id %d may come", id)
		}
	}
}

func TestGrammarGoroutines(t *testing.T) {
	tok, g := grammars(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				schema, _ := json.Marshal(map[string]any{"type": "string", "maxLength": 5})
				if !accepts(t, tok, g, GrammarSpec{GrammarJSONSchema, string(schema)}, `"abc"`) {
					t.Error("refused")
				}
			}
		})
	}
	wg.Wait()
}
