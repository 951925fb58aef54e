package kv

import (
	"math/rand/v2"
	"testing"
)

// item returns an item whose hash is one byte.
func item(hash byte, at, n int) Item {
	return Item{Hash: [32]byte{hash}, At: at, Tokens: n, From: at, To: at + n}
}

// TestMatchItems finds the prefixes of prompts whose tokens are equal: an item shares the blocks of the
// same item at the same place, and the blocks before it.
func TestMatchItems(t *testing.T) {
	p := NewPool(layoutOf(t, fullSpec), 20, true) // blocks of 4
	tokens := make([]int32, 33)
	tab := p.NewTable("")
	tab.SetItems([]Item{item(1, 6, 5), item(2, 20, 4)})
	if !p.Extend(tab, 0, 33, 33) {
		t.Fatal("no room")
	}
	p.Seal(tab, tokens, 33)
	p.Free(tab)
	joined := func(hash byte) []Item { // tokens of the first see those of the second
		out := []Item{item(1, 6, 5), item(hash, 11, 5)}
		out[0].To, out[1].From = 16, 6
		return out
	}
	for _, c := range []struct {
		name  string
		items []Item
		want  int
	}{
		{"the same items", []Item{item(1, 6, 5), item(2, 20, 4)}, 32},
		{"no items", nil, 4},
		{"another first", []Item{item(3, 6, 5), item(2, 20, 4)}, 4},
		{"another second", []Item{item(1, 6, 5), item(3, 20, 4)}, 20},
		{"no second", []Item{item(1, 6, 5)}, 20},
		{"a token later", []Item{item(1, 7, 5)}, 4},
		{"a third in the last block", []Item{item(1, 6, 5), item(2, 20, 4), item(2, 30, 1)}, 28},
		{"one that follows at once and is seen", joined(2), 4},
	} {
		if got := p.Cached(tokens, c.items...); got != c.want {
			t.Errorf("%s: %d tokens, want %d", c.name, got, c.want)
		}
	}
	for _, hash := range []byte{2, 3} {
		tab := p.NewTable("")
		tab.SetItems(joined(hash))
		n := p.Match(tab, tokens)
		if !p.Extend(tab, n, 33, 33) {
			t.Fatal("no room")
		}
		p.Seal(tab, tokens, 33)
		p.Free(tab)
		if n != 4 {
			t.Errorf("items beside item %d: %d tokens found, want 4", hash, n)
		}
	}
}

// TestEncoderCache places items, finds them and takes the least recently used that nothing needs.
func TestEncoderCache(t *testing.T) {
	c := NewEncoderCache(10)
	hash := func(n byte) [32]byte { return [32]byte{n} }
	at := func(n byte, rows int) int {
		t.Helper()
		e := c.Place(hash(n), rows)
		if e == nil {
			return -1
		}
		return e.At
	}
	c.BeginStep()
	if a, b, d := at(1, 4), at(2, 3), at(3, 4); a != 0 || b != 4 || d != -1 {
		t.Fatalf("placed at %d, %d, %d: the step uses 7 of 10 rows", a, b, d)
	}
	if d := at(3, 3); d != 7 {
		t.Fatalf("the third at %d", d)
	}
	c.BeginStep()
	c.Use(hash(1))
	if d := at(4, 2); d != 4 || c.Peek(hash(2)) != nil || c.Peek(hash(1)) == nil || c.Peek(hash(3)) == nil {
		t.Fatalf("the fourth at %d; it takes the rows of the second", d)
	}
	c.BeginStep()
	c.Pin(c.Peek(hash(4)))
	if d := at(5, 5); d != -1 || c.Usage() != (EncoderUsage{Rows: 10, Cached: 9, Pinned: 2, Items: 3}) {
		t.Errorf("5 rows at %d beside a pinned item: %+v", d, c.Usage())
	}
	if d := at(6, 4); d != 6 {
		t.Errorf("4 rows at %d", d)
	}
	if err := c.Check(map[*Encoded]int{c.Peek(hash(4)): 1}); err != nil {
		t.Error(err)
	}
	if c.Check(nil) == nil {
		t.Error("a pin without an owner passes")
	}
	c.Unpin(c.Peek(hash(4)))
	c.Remove(c.Peek(hash(4)))
	c.BeginStep()
	if d := at(7, 10); d != 0 {
		t.Errorf("all rows at %d", d)
	}
}

// TestEncoderCacheRandom checks the cache after random calls.
func TestEncoderCacheRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 4))
	for range 50 {
		rows := 1 + rng.IntN(40)
		c, pins := NewEncoderCache(rows), map[*Encoded]int{}
		for range 300 {
			h, n := [32]byte{byte(rng.IntN(12))}, 1+rng.IntN(rows)
			e := c.Peek(h)
			switch rng.IntN(6) {
			case 0:
				c.BeginStep()
			case 1:
				if e != nil {
					c.Pin(e)
					pins[e]++
				}
			case 2:
				if pins[e] > 1 {
					c.Unpin(e)
					pins[e]--
				} else if pins[e] == 1 {
					c.Unpin(e)
					delete(pins, e)
				}
			case 3:
				c.Use(h)
			case 4:
				if e != nil && pins[e] == 0 {
					c.Remove(e)
				}
			default:
				if e == nil {
					c.Place(h, n)
				}
			}
			if err := c.Check(pins); err != nil {
				t.Fatal(err)
			}
			for e := range pins {
				if c.Peek(e.Hash) != e {
					t.Fatal("a pinned item left the cache")
				}
			}
		}
	}
}
