//go:build cgo

package grammar

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"vapp.dev/engine/tokenizer"
)

// waitFreed waits until Close, which works in the background, has freed the states' memory.
func waitFreed(t *testing.T, c *Compiler, want int64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); c.Used() != want; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are in use, want %d", c.Used(), want)
		}
	}
}

// TestMemoryHolds checks that live grammars and states never exceed the budget, that one that does
// not fit gets ErrBusy, and that finished replies free their memory.
func TestMemoryHolds(t *testing.T) {
	c, _, _ := compiler(t)
	spec := schemaSpec(schema)
	one, err := c.Compile(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	c.Limit(plainMemory + one.size)
	fit := int((c.store.budget - one.size) / one.copy)
	if fit < 2 || one.Fits(fit) != nil || one.Fits(fit+1) == nil {
		t.Fatalf("%d states of %d bytes and another grammar of %d fit by %d bytes", fit, one.copy, one.size, c.store.budget)
	}
	var states []*State
	for range fit {
		s, err := one.Begin(Preamble{}, true)
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, s)
	}
	if want := one.size + int64(fit)*one.copy; c.Used() != want || want > c.store.budget {
		t.Errorf("%d states take %d bytes of %d, want %d", fit, c.Used(), c.store.budget, want)
	}
	if _, err := one.Begin(Preamble{}, true); !errors.Is(err, ErrBusy) {
		t.Errorf("one more state: %v", err)
	}
	if _, err := c.Compile(t.Context(), regexSpec("a")); !errors.Is(err, ErrBusy) {
		t.Errorf("one more grammar: %v", err)
	}
	for _, s := range states {
		s.Close()
	}
	waitFreed(t, c, one.size)
	one.Release()
	other, err := c.Compile(t.Context(), regexSpec("a"))
	if err != nil {
		t.Fatal(err)
	}
	if g := c.store.get(spec); g == nil || c.Used() != one.size+other.size {
		t.Errorf("after all replies %d bytes are in use, want %d + %d", c.Used(), one.size, other.size)
	}
}

// TestMemoryGrows checks that a state allocates as its matcher grows, and fails at the end of the
// budget.
func TestMemoryGrows(t *testing.T) {
	c, tok, end := compiler(t)
	s := begin(t, c, regexSpec(`(a{0,64}){0,64}`), Preamble{}, false)
	c.Limit(plainMemory)
	mask, first := make([]uint32, (tok.VocabSize()+31)/32), s.taken
	r := rand.New(rand.NewPCG(1, 2))
	for range 1500 {
		if s.Mask(mask); s.Err() != nil {
			break
		}
		id := int32(r.IntN(tok.VocabSize()))
		for !may(mask, id) || id == end {
			id = int32(r.IntN(tok.VocabSize()))
		}
		if _, _, err := s.Take(id); err != nil {
			break
		}
	}
	var e *Error
	if err := s.Err(); !errors.As(err, &e) || s.taken <= first {
		t.Errorf("after %d bytes: %v", s.taken, err)
	}
	s.Close()
	waitFreed(t, c, s.g.size)
}

// TestMemoryOfTrial checks that a compilation needs the memory that its trial reported, and that a
// grammar that passed the trial can run alone.
func TestMemoryOfTrial(t *testing.T) {
	c := newTrialCompiler(t, 0)
	source := `{"properties":{` + times(1000, func(i int) string {
		return `"property` + string(rune('a'+i%26)) + times(i/26+1, func(int) string { return "x" }) + `":{"type":"string"},`
	}) + `"x":{}}}`
	var bytes int64
	try := c.try
	c.try = func(ctx context.Context, s Spec, cost int, unneeded func() bool) (func(), int64, error) {
		leave, n, err := try(ctx, s, cost, unneeded)
		bytes = n
		return leave, n, err
	}
	c.Limit(64 << 20)
	g, err := c.Compile(t.Context(), Spec{Kind: tokenizer.GrammarJSONSchema, Source: source})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes of source: the trial took %d KiB, the grammar %d KiB, a state %d KiB", len(source), bytes>>10, g.size>>10, g.copy>>10)
	if bytes < g.size || bytes > 64<<20 || c.Used() != g.size {
		t.Errorf("the trial took %d bytes, the grammar %d, in use are %d", bytes, g.size, c.Used())
	}
	s, err := g.Begin(Preamble{}, true)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	c.Limit(bytes / 2)
	g.Release()
	waitFreed(t, c, g.size)
	var e *Error
	if _, err := c.Compile(t.Context(), Spec{Kind: tokenizer.GrammarJSONSchema, Source: source + " "}); !errors.As(err, &e) {
		t.Errorf("over the budget: %v", err)
	}
}
