package speculate

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// looked implements the rule directly: the longest n-gram at the end that occurred before, its first
// occurrence, and the tokens that follow there.
func looked(g NGram, tokens []int32, k int) []int32 {
	for n := min(g.Max, len(tokens)); n >= g.Min; n-- {
		for end := n; end < len(tokens); end++ {
			if slices.Equal(tokens[end-n:end], tokens[len(tokens)-n:]) {
				return tokens[end:min(end+k, len(tokens))]
			}
		}
	}
	return nil
}

func proposed(t testing.TB, g NGram, tokens []int32, k int) []int32 {
	x := NewIndex(g)
	if n := x.Read(tokens, len(tokens)); n != len(tokens) {
		t.Fatalf("%d of %d tokens are read", n, len(tokens))
	}
	return x.Propose(nil, tokens, k)
}

// TestLookup: cases of vLLM's proposer, and edge cases.
func TestLookup(t *testing.T) {
	for _, c := range []struct {
		name     string
		min, max int
		tokens   []int32
		k        int
		want     []int32
	}{
		{"the longest that occurs", 2, 3, []int32{1, 2, 3, 4, 2, 3}, 4, []int32{4, 2, 3}},
		{"none", 2, 2, []int32{1, 2, 3, 4, 5}, 2, nil},
		{"longer first", 2, 4, []int32{2, 3, 9, 1, 2, 3, 7, 1, 2, 3}, 2, []int32{7, 1}},
		{"the first of equals", 2, 2, []int32{2, 3, 4, 2, 3, 5, 2, 3}, 1, []int32{4}},
		{"it overlaps itself", 1, 3, []int32{5, 5, 5, 5, 5}, 4, []int32{5, 5}},
		{"shorter than min", 3, 3, []int32{1, 1}, 4, nil},
		{"one token", 1, 1, []int32{7}, 4, nil},
		{"nothing is wanted", 1, 1, []int32{7, 7}, 0, nil},
		{"no tokens", 1, 4, nil, 4, nil},
	} {
		if got := proposed(t, NGram{c.min, c.max}, c.tokens, c.k); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestLookupAtRandom: token by token, with all sizes of Read, the proposals are those of the rule.
func TestLookupAtRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	hits := 0
	for range 300 {
		g := NGram{Min: 1 + rng.IntN(5)}
		g.Max = g.Min + rng.IntN(5)
		x, kinds, k := NewIndex(g), 1+rng.IntN(4), rng.IntN(6)
		var tokens []int32
		for len(tokens) < 150 {
			for range 1 + rng.IntN(3) {
				tokens = append(tokens, int32(rng.IntN(kinds)))
			}
			if n := x.Read(tokens, 2); n == 0 || x.read < len(tokens) {
				if got := x.Propose(nil, tokens, k); got != nil {
					t.Fatalf("%v is proposed after %d of %d tokens", got, x.read, len(tokens))
				}
				x.Read(tokens, len(tokens))
			}
			got, want := x.Propose([]int32{-9}, tokens, k), looked(g, tokens, k)
			if got[0] != -9 || !slices.Equal(got[1:], want) {
				t.Fatalf("%+v, %d tokens of %v: %v, want %v", g, k, tokens, got[1:], want)
			}
			hits += len(want)
		}
	}
	if hits < 10000 {
		t.Errorf("%d tokens proposed: the test tests too little", hits)
	}
}

// TestIndexIsBounded: an index takes at most the memory that TokenBytes returns, and reading a token
// allocates only when a table grows.
func TestIndexIsBounded(t *testing.T) {
	g := NGram{2, 5}
	x := NewIndex(g)
	tokens := make([]int32, 1<<15)
	for i := range tokens {
		tokens[i] = int32(i) // every n-gram is new
	}
	for n := 16; n <= len(tokens); n++ {
		x.Read(tokens[:n], n)
		var bytes int64
		for _, tab := range x.tables {
			bytes += 4 * int64(cap(tab.slots))
		}
		if most := g.TokenBytes() * int64(n); bytes > most {
			t.Fatalf("%d bytes for %d tokens, at most %d", bytes, n, most)
		}
	}
	next := slices.Clone(tokens)
	if n := testing.AllocsPerRun(100, func() {
		next = append(next[:len(tokens)], 1)
		x.Propose(nil, next, 3)
	}); n != 0 {
		t.Errorf("%g allocations a proposal", n)
	}
}

func TestNGramRefuses(t *testing.T) {
	for _, g := range []NGram{{0, 1}, {2, 1}, {-1, -1}, {1, MaxNGram + 1}, {1, 0}} {
		var e *OptionError
		if err := g.Validate(); !errors.As(err, &e) {
			t.Errorf("%+v: %v", g, err)
		}
	}
	if (NGram{}).Validate() != nil || NewIndex(NGram{}) != nil || (NGram{1, MaxNGram}).Validate() != nil {
		t.Error("what is right is refused")
	}
}

func FuzzLookup(f *testing.F) {
	f.Add([]byte("abcabcab"), 1, 3, 4)
	f.Add([]byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), 5, 32, 31)
	f.Fuzz(func(t *testing.T, text []byte, least, most, k int) {
		g := NGram{least, most}
		if g.Validate() != nil || g == (NGram{}) {
			return
		}
		var tokens []int32
		for _, b := range text[:min(len(text), 400)] {
			tokens = append(tokens, int32(b)<<24|int32(b%3))
		}
		k = k % 64
		if got, want := proposed(t, g, tokens, k), looked(g, tokens, max(0, k)); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// BenchmarkLookup measures the cost of a decode step for a sequence of 128K tokens: one token is read
// and up to four are proposed.
func BenchmarkLookup(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	tokens := make([]int32, 1<<17, 1<<17+b.N)
	for i := range tokens {
		tokens[i] = int32(rng.IntN(2000))
	}
	for _, g := range []NGram{{5, 5}, {2, 5}} {
		x := NewIndex(g)
		x.Read(tokens, len(tokens))
		b.Run("", func(b *testing.B) {
			more, dst := tokens, make([]int32, 0, 8)
			x.read = len(tokens)
			for b.Loop() {
				more = append(more, more[len(more)-1<<16])
				x.Read(more, 1)
				dst = x.Propose(dst[:0], more, 4)
			}
		})
	}
}
