//go:build cgo

package grammar

import (
	"context"
	"encoding/json"
	"errors"
	"math/bits"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"vapp.dev/engine/fairqueue"
	"vapp.dev/engine/tokenizer"
)

func compiler(t testing.TB) (*Compiler, *tokenizer.Tokenizer, int32) {
	t.Helper()
	b, err := os.ReadFile("../tokenizer/testdata/bytelevel.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(b, tokenizer.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tok.Close)
	end, _ := tok.ID("<|im_end|>")
	return NewCompiler(tok, tok.VocabSize(), []int32{end}), tok, end
}

func begin(t *testing.T, c *Compiler, s Spec, l Preamble, jump bool) *State {
	t.Helper()
	g, err := c.Compile(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	st, err := g.Begin(l, jump)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	g.Release()
	return st
}

// write samples tokens with r until the grammar ends, and returns them and the number sampled.
func write(t *testing.T, s *State, words int, end int32, r *rand.Rand) (ids []int32, drawn int) {
	t.Helper()
	mask := make([]uint32, words)
	for len(ids) < 2000 {
		if !s.Mask(mask) {
			t.Fatal("no constraint")
		}
		var may []int32
		for id := range int32(32 * words) {
			if mask[id/32]>>(id%32)&1 == 1 {
				may = append(may, id)
			}
		}
		if len(may) == 0 {
			t.Fatalf("no token may come: %v", s.Err())
		}
		id := may[r.IntN(len(may))]
		if id == end {
			return ids, drawn
		}
		drawn++
		forced, ended, err := s.Take(id)
		if err != nil {
			t.Fatal(err)
		}
		if ids = append(append(ids, id), forced...); ended {
			return ids, drawn
		}
	}
	t.Fatal("no end")
	return nil, 0
}

const schema = `{"type":"object","properties":{"city":{"type":"string","maxLength":6},"temperature":{"type":"integer","minimum":-9,"maximum":99},"kind":{"enum":["sunny","rainy"]}},"required":["city","temperature","kind"],"additionalProperties":false,"x-guidance":{"whitespace_flexible":false}}`

func TestRandomReplies(t *testing.T) {
	c, tok, end := compiler(t)
	jumped := 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := begin(t, c, Spec{Kind: tokenizer.GrammarJSONSchema, Source: schema}, Preamble{}, true)
		ids, drawn := write(t, s, (tok.VocabSize()+31)/32, end, r)
		jumped += len(ids) - drawn
		text, err := tok.Decode(ids, false)
		if err != nil {
			t.Fatal(err)
		}
		var v struct {
			City        *string
			Temperature *int
			Kind        string
		}
		if err := json.Unmarshal([]byte(text), &v); err != nil || v.City == nil || v.Temperature == nil || *v.Temperature < -9 || *v.Temperature > 99 || v.Kind != "sunny" && v.Kind != "rainy" {
			t.Errorf("seed %d: %q: %v", seed, text, err)
		}
	}
	if jumped == 0 {
		t.Error("nothing was forced")
	}
	t.Logf("%d tokens without a draw", jumped)
}

// TestJumpChangesNothing checks that the reply is the same whether forced tokens are sampled or
// not.
func TestJumpChangesNothing(t *testing.T) {
	c, tok, _ := compiler(t)
	spec := Spec{Kind: tokenizer.GrammarChoice, Source: `["the quick brown fox","the quick red hen"]`}
	words := (tok.VocabSize() + 31) / 32
	first := func(s *State, mask []uint32) (id int32) {
		s.Mask(mask)
		for i, w := range mask {
			if w != 0 {
				return int32(32*i + bits.TrailingZeros32(w))
			}
		}
		t.Fatal("no token may come")
		return 0
	}
	var replies [2][]int32
	for i, jump := range []bool{true, false} {
		s, mask := begin(t, c, spec, Preamble{}, jump), make([]uint32, words)
		for ended := false; !ended; {
			id := first(s, mask)
			forced, end, err := s.Take(id)
			if err != nil || !jump && len(forced) > 0 {
				t.Fatal(forced, err)
			}
			replies[i], ended = append(append(replies[i], id), forced...), end
		}
	}
	a, _ := tok.Decode(replies[0], false)
	b, _ := tok.Decode(replies[1], false)
	if a != b || len(replies[0]) != len(replies[1]) || !strings.HasPrefix(a, "the quick ") {
		t.Errorf("%q %v\n%q %v", a, replies[0], b, replies[1])
	}
}

func TestPreamble(t *testing.T) {
	c, tok, end := compiler(t)
	mask := make([]uint32, (tok.VocabSize()+31)/32)
	spec := Spec{Kind: tokenizer.GrammarRegex, Source: "[0-9]{2}"}
	say := func(s *State, text string) {
		ids, err := tok.Encode(text, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if _, _, err := s.Take(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, l := range []Preamble{{Inside: true, Ends: []string{"</think>", "ENOUGH"}}, {Inside: true, Ends: []string{"THAT IS ENOUGH"}}} {
		s := begin(t, c, spec, l, true)
		say(s, "what is it, think, THAT IS ENOUG")
		if s.Mask(mask); countAllowed(mask) < tok.VocabSize()-1 || may(mask, end) {
			t.Errorf("%v: before its end %d tokens may come, the end of the reply: %v", l, countAllowed(mask), may(mask, end))
		}
		say(s, "H")
		if s.Mask(mask); countAllowed(mask) > 200 {
			t.Errorf("%v: not constrained behind the end", l)
		}
		say(s, "4")
		if _, ended, err := s.Take(id(t, tok, "2")); !ended || err != nil {
			t.Errorf("%v: ended %v, %v", l, ended, err)
		}
	}
	// The preamble may or may not begin.
	l := Preamble{Open: "<|im_start|>", Ends: []string{"ENOUGH"}}
	s := begin(t, c, spec, l, true)
	open := id(t, tok, l.Open)
	if !s.Mask(mask) || !may(mask, open) {
		t.Error("the opening marker may not come first")
	}
	if _, _, err := s.Take(open); err != nil {
		t.Error(err)
	}
	if s.Mask(mask); countAllowed(mask) < tok.VocabSize()-1 || may(mask, end) {
		t.Errorf("in the thought %d tokens may come, the end of the reply: %v", countAllowed(mask), may(mask, end))
	}
	say(s, "well ENOUGH")
	if !s.Mask(mask) || may(mask, open) {
		t.Error("the marker may come once more")
	}
}

func may(mask []uint32, id int32) bool { return mask[id/32]>>(id%32)&1 == 1 }

// countAllowed counts the tokens of a mask.
func countAllowed(mask []uint32) (n int) {
	for _, w := range mask {
		n += bits.OnesCount32(w)
	}
	return n
}

func id(t *testing.T, tok *tokenizer.Tokenizer, token string) int32 {
	t.Helper()
	id, is := tok.ID(token)
	if !is {
		t.Fatalf("no token %q", token)
	}
	return id
}

func TestRefused(t *testing.T) {
	c, _, _ := compiler(t)
	for _, s := range []Spec{
		{Kind: "sonnet"}, {Kind: tokenizer.GrammarRegex, Source: "(("}, {Kind: tokenizer.GrammarJSONSchema, Source: `{"not":{"type":"string"}}`},
		{Kind: tokenizer.GrammarJSONSchema, Source: `{"$ref":"https://example.com/s.json"}`},
		{Kind: tokenizer.GrammarLark, Source: "start: start"},
	} {
		_, err := c.Compile(context.Background(), s)
		var e *Error
		if !errors.As(err, &e) || e.Kind != s.Kind || strings.Contains(e.Text, "\n") {
			t.Errorf("%s %.60q: %v", s.Kind, s.Source, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Compile(ctx, Spec{Kind: tokenizer.GrammarRegex, Source: "a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestCacheForgets(t *testing.T) {
	c, _, _ := compiler(t)
	for i := range keep + 10 {
		if _, err := c.Compile(context.Background(), Spec{Kind: tokenizer.GrammarRegex, Source: strings.Repeat("a", i+1)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.store.byKey); n != keep || len(c.store.order) != keep {
		t.Errorf("%d grammars are kept", n)
	}
	if c.store.get(Spec{Kind: tokenizer.GrammarRegex, Source: "a"}) != nil || c.store.get(Spec{Kind: tokenizer.GrammarRegex, Source: strings.Repeat("a", keep+10)}) == nil {
		t.Error("the oldest stayed or the latest went")
	}
}

func TestCacheForgetsBytes(t *testing.T) {
	c := store{byKey: map[Spec]*Grammar{}}
	for i := range 20 {
		c.put(&Grammar{spec: Spec{Source: strings.Repeat("a", keepBytes/4-i)}})
	}
	if len(c.byKey) != 4 || c.source > keepBytes || c.get(Spec{Source: strings.Repeat("a", keepBytes/4-19)}) == nil {
		t.Errorf("%d grammars of %d bytes are kept", len(c.byKey), c.source)
	}
	c.put(&Grammar{spec: Spec{Source: strings.Repeat("b", 2*keepBytes)}, uses: 1})
	if len(c.byKey) != 1 || c.source != 2*keepBytes {
		t.Errorf("%d grammars of %d bytes are kept next to a large one", len(c.byKey), c.source)
	}
}

// TestCompileOnce checks that concurrent requests for one grammar compile it once.
func TestCompileOnce(t *testing.T) {
	c, _, _ := compiler(t)
	if _, err := c.environment(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	tries := 0
	gate := fairqueue.NewGate(1, 100)
	c.TryWith(func(ctx context.Context, _ Spec, cost int, unneeded func() bool) (func(), int64, error) {
		leave, err := gate.Enter(ctx, cost)
		if err != nil || unneeded() {
			return leave, 0, err
		}
		mu.Lock()
		defer mu.Unlock()
		tries++
		return leave, 1 << 20, nil
	})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := c.Compile(context.Background(), Spec{Kind: tokenizer.GrammarRegex, Source: "a{1000}"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if tries != 1 {
		t.Errorf("it was tried %d times", tries)
	}
}

// TestPlainDoesNotWait checks that plain grammars do not wait for grammars that are tried first.
func TestPlainDoesNotWait(t *testing.T) {
	c, _, _ := compiler(t)
	c.TryWith(func(ctx context.Context, _ Spec, _ int, _ func() bool) (func(), int64, error) {
		<-ctx.Done()
		return nil, 0, ctx.Err()
	})
	if _, err := c.Compile(context.Background(), Spec{Kind: tokenizer.GrammarRegex, Source: "a{100}"}); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Millisecond, ErrBusy)
	defer cancel()
	if _, err := c.Compile(ctx, Spec{Kind: tokenizer.GrammarRegex, Source: "a{1000}"}); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
}

// FuzzCompile checks that any grammar is accepted or refused, and that an accepted one has a first
// mask.
func FuzzCompile(f *testing.F) {
	f.Add(tokenizer.GrammarJSONSchema, schema)
	f.Add(tokenizer.GrammarJSONSchema, `{"$defs":{"a":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`)
	f.Add(tokenizer.GrammarRegex, `(a?){64}a{64}`)
	f.Add(tokenizer.GrammarLark, "start: a*\na: b*\nb: \"x\"*")
	f.Add(tokenizer.GrammarChoice, `["a"]`)
	c, tok, _ := compiler(f)
	mask := make([]uint32, (tok.VocabSize()+31)/32)
	f.Fuzz(func(t *testing.T, kind, source string) {
		if !plain(Spec{Kind: kind, Source: source}) {
			return // in a server a child process tries it first
		}
		g, err := c.Compile(context.Background(), Spec{Kind: kind, Source: source})
		if err != nil {
			return
		}
		s, err := g.Begin(Preamble{}, true)
		if err != nil {
			t.Fatal(err)
		}
		if !s.Mask(mask) {
			t.Error("no constraint")
		}
		s.Close()
	})
}
