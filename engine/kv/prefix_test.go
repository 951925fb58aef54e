package kv

import (
	"fmt"
	"strings"
	"testing"
)

func ids(n int, v int32) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = v + int32(i%7)
	}
	return out
}

// filled returns a table whose n tokens are computed and sealed.
func filled(t testing.TB, p *Pool, salt string, tokens []int32) *Table {
	tab := p.NewTable(salt)
	done := p.Match(tab, tokens)
	if !p.Extend(tab, done, len(tokens), len(tokens)) {
		t.Fatal("no room")
	}
	p.Seal(tab, tokens, len(tokens))
	return tab
}

func TestMatch(t *testing.T) {
	p := NewPool(layoutOf(t, fullSpec), 20, true)
	p.Free(filled(t, p, "", ids(17, 0)))
	other := ids(17, 0)
	other[6] = 99
	for _, c := range []struct {
		name, salt string
		tokens     []int32
		want       int
	}{
		{"the same", "", ids(17, 0), 16},
		{"never all", "", ids(16, 0), 12},
		{"longer", "", ids(40, 0), 16},
		{"shorter", "", ids(7, 0), 4},
		{"less than a block", "", ids(4, 0), 0},
		{"one token", "", ids(1, 0), 0},
		{"a token differs", "", other, 4},
		{"other salt", "s", ids(17, 0), 0},
		{"other tokens", "", ids(17, 1), 0},
	} {
		if got := p.Cached(c.tokens); c.salt == "" && got != c.want {
			t.Errorf("%s: Cached is %d, want %d", c.name, got, c.want)
		}
		tab := p.NewTable(c.salt)
		if n := p.Match(tab, c.tokens); n != c.want || len(tab.Pages(0)) != n/4 {
			t.Errorf("%s: matched %d, want %d", c.name, n, c.want)
		}
		p.Free(tab)
	}
	off := NewPool(layoutOf(t, fullSpec), 20, false)
	off.Free(filled(t, off, "", ids(17, 0)))
	if n := off.Match(off.NewTable(""), ids(17, 0)); n != 0 || off.Usage(0).Cached != 0 {
		t.Errorf("without caching %d tokens matched", n)
	}
}

// TestSaltIsNoBlock: a salt cannot equal the bytes of a block's key.
func TestSaltIsNoBlock(t *testing.T) {
	p := NewPool(layoutOf(t, fullSpec), 20, true)
	tokens := ids(9, 0)
	a := filled(t, p, "", tokens)
	var salt strings.Builder
	root := rootKey("")
	salt.Write(root[:])
	for _, id := range tokens[:4] {
		fmt.Fprintf(&salt, "%c%c%c%c", byte(id), 0, 0, 0)
	}
	if rootKey(salt.String()) == a.chain[0][0] {
		t.Error("a salt gives the key of a block")
	}
}

// TestEvictionOrder: of the least recently used sequence the last blocks are evicted first, so that its
// prefix stays cached.
func TestEvictionOrder(t *testing.T) {
	p := NewPool(layoutOf(t, Spec{"full", Full, 1 << 20, 4, 0, 0}), 8, true)
	p.Free(filled(t, p, "a", ids(16, 0)))
	p.Free(filled(t, p, "b", ids(16, 0)))
	c := p.NewTable("c")
	if !p.Extend(c, 0, 8, 8) {
		t.Fatal("no room")
	}
	for salt, want := range map[string]int{"a": 8, "b": 16} {
		tab := p.NewTable(salt)
		if n := p.Match(tab, ids(17, 0)); n != want {
			t.Errorf("%s: %d tokens are left, want %d", salt, n, want)
		}
		p.Free(tab)
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}

// TestSharedPages: two sequences own the same pages; when the second ends, the first keeps them.
func TestSharedPages(t *testing.T) {
	p := NewPool(layoutOf(t, fullSpec), 20, true)
	a := filled(t, p, "", ids(17, 0))
	b := filled(t, p, "", ids(17, 0))
	if used := p.Usage(0).Used; used != 6 {
		t.Errorf("%d pages are owned, want 4 shared and 2 others", used)
	}
	p.Free(b)
	if p.Usage(0) != (Usage{Pages: p.Layout().Pages(0, 20), Used: 5, Cached: 0}) {
		t.Errorf("%+v", p.Usage(0))
	}
	p.Free(a)
	if u := p.Usage(0); u.Used != 0 || u.Cached != 4 {
		t.Errorf("%+v", u)
	}
	freed := p.Frees()
	p.Free(a)
	if p.Frees() != freed || p.Check() != nil {
		t.Error("freeing twice did something")
	}
}

// TestWindowMatch: blocks that a window has passed stay cached until they are reused. A hit needs only
// those that the next position reads.
func TestWindowMatch(t *testing.T) {
	w := Spec{"window", Window, 1 << 20, 4, 6, 0}
	p := NewPool(layoutOf(t, Spec{"full", Full, 1 << 20, 4, 0, 0}, w), 20, true)
	tokens := ids(33, 0)
	tab := p.NewTable("")
	for n := range 32 {
		if !p.Extend(tab, n, n+1, n+1) {
			t.Fatal("no room")
		}
		p.Seal(tab, tokens, n+1)
	}
	if u := p.Usage(1); u.Used != 2 || u.Cached != 6 {
		t.Errorf("window: %+v", u)
	}
	p.Free(tab)
	b := p.NewTable("")
	if n := p.Match(b, tokens[:22]); n != 20 || fmt.Sprint(b.Pages(1)[:3]) != "[-1 -1 -1]" || b.parts[1].held != 2 {
		t.Errorf("matched %d, window pages %v", n, b.Pages(1))
	}
	p.Free(b)
	// With the window's block 4 evicted, 20 and 24 tokens do not match any more, but 16 and 28 do.
	c := &p.classes[1]
	page := c.byKey[tab.chain[0][4]]
	p.uncache(1, page)
	p.own(c, page)
	p.release(c, page)
	for most, want := range map[int]int{22: 16, 26: 16, 30: 28, 33: 32} {
		c := p.NewTable("")
		if n := p.Match(c, tokens[:most]); n != want {
			t.Errorf("of %d tokens %d matched, want %d", most, n, want)
		}
		p.Free(c)
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}

// TestChunkMatch: a sequence keeps the pages of its chunk only, and a hit needs those of the chunk that
// the next position is in. The last block of a chunk is never whole: its last token leaves the chunk
// with the step that computes it.
func TestChunkMatch(t *testing.T) {
	p := NewPool(layoutOf(t, Spec{"full", Full, 1 << 20, 4, 0, 0}, Spec{"chunk", Chunk, 1 << 20, 4, 12, 0}), 20, true)
	tokens := ids(33, 0)
	tab := p.NewTable("")
	for n := range 32 {
		if !p.Extend(tab, n, n+1, n+1) {
			t.Fatal("no pages")
		}
		p.Seal(tab, tokens, n+1)
		if held := tab.parts[1].held; held != ((n+1)%12+3)/4 {
			t.Errorf("after %d tokens %d pages of the chunk are held", n+1, held)
		}
	}
	if u := p.Usage(1); u.Used != 2 || u.Cached != 4 {
		t.Errorf("chunk: %+v", u)
	}
	p.Free(tab)
	for most, want := range map[int]int{10: 8, 12: 8, 13: 12, 17: 16, 24: 20, 25: 24, 33: 32} {
		c := p.NewTable("")
		if n := p.Match(c, tokens[:most]); n != want || c.parts[1].held != n%12/4 {
			t.Errorf("of %d tokens %d matched with %d pages of the chunk, want %d", most, n, c.parts[1].held, want)
		}
		p.Free(c)
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}

// TestSpeculative: proposals end before the next chunk.
func TestSpeculative(t *testing.T) {
	l := layoutOf(t, fullSpec, chunkSpec, oddSpec)
	for sure, want := range map[int]int{1: 5, 4: 5, 5: 4, 9: 0, 10: 1, 11: 0, 12: 5, 19: 0, 23: 0} {
		if n := l.Speculative(sure, 5); n != want {
			t.Errorf("%d proposals from %d on, want %d", n, sure, want)
		}
	}
	if n := layoutOf(t, fullSpec, aheadSpec).Speculative(11, 5); n != 5 {
		t.Errorf("%d proposals without chunks, want 5", n)
	}
}

// TestSlabsMove: cached pages of one class are evicted for another.
func TestSlabsMove(t *testing.T) {
	p := NewPool(layoutOf(t, Spec{"full", Full, 400 << 10, 4, 0, 0}, Spec{"window", Window, 700 << 10, 4, 4000, 0}), 6, true)
	per := p.layout.PagesPerSlab
	full, window := p.NewTable("f"), p.NewTable("w")
	// Both classes grow with the sequence until the pool runs out.
	tokens := ids(per[0]*6*4, 0)
	most := 0
	for p.Extend(full, most, most+1, most+1) {
		most++
	}
	p.Seal(full, tokens, most)
	p.Free(full)
	if p.Usage(0).Cached == 0 || len(p.freeSlabs) > 1 {
		t.Fatalf("%+v, %d slabs are unlent", p.Usage(0), len(p.freeSlabs))
	}
	if !p.Extend(window, 0, most, most) {
		t.Fatal("cached pages are in the way")
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}

// TestFitsIsExact: with one class, Extend succeeds if and only if Fits returns true, and Fits does if
// and only if there are enough pages without an owner.
func TestFitsIsExact(t *testing.T) {
	s := newSim(t, []Spec{fullSpec}, 5, 3)
	for range 3000 {
		if err := s.step(); err != nil {
			t.Fatal(err)
		}
		u := s.pool.Usage(0)
		for _, more := range []int{u.Pages - u.Used, u.Pages - u.Used + 1} {
			if got := s.pool.Fits([]int{more}); got != (more <= u.Pages-u.Used) {
				t.Fatalf("%d more pages with %+v: %v", more, u, got)
			}
		}
	}
	free := s.pool.Usage(0).Pages - s.pool.Usage(0).Used
	if tab := s.pool.NewTable("x"); !s.pool.Extend(tab, 0, 4*free, 4*free) || s.pool.Extend(tab, 4*free, 4*free+1, 4*free+1) {
		t.Error("the last page cannot be had, or one more can")
	}
}
