package kv

import (
	"errors"
	"math"
	"testing"
)

func layoutOf(t testing.TB, specs ...Spec) Layout {
	l, err := NewLayout(specs)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestOneClassWastesNothing(t *testing.T) {
	for _, page := range []int64{64, 4096, 100_000, 368_640, 1 << 20, 5 << 20, 78 << 20, 3 << 30} {
		l := layoutOf(t, Spec{Name: "full", PageBytes: page, BlockSize: 16})
		if l.SlabBytes != int64(l.PagesPerSlab[0])*page {
			t.Errorf("page of %d: slab of %d holds %d", page, l.SlabBytes, l.PagesPerSlab[0])
		}
		if page <= 1<<20 && (l.SlabBytes < 1<<20 || l.SlabBytes > 4<<20) || page > 1<<20 && l.PagesPerSlab[0] != 1 {
			t.Errorf("page of %d: slab of %d", page, l.SlabBytes)
		}
	}
}

// TestSlabSizeOfTwoClasses: pages of gpt-oss have one size, so slabs have no unused share. Those of
// Gemma 4 have two, and the slab size with the least unused share is found.
func TestSlabSizeOfTwoClasses(t *testing.T) {
	const k = 1 << 10
	l := layoutOf(t, Spec{"full", Full, 12 * 32 * k, 16, 0, 0}, Spec{"window", Window, 12 * 32 * k, 16, 128, 0})
	if w := unusedShare(l.Specs, l.SlabBytes); w != 0 || l.PagesPerSlab[0] != l.PagesPerSlab[1] {
		t.Errorf("%+v wastes %g", l, w)
	}
	l = layoutOf(t, Spec{"full", Full, 5 * 64 * k, 16, 0, 0}, Spec{"window", Window, 25 * 128 * k, 16, 1024, 0})
	if w := unusedShare(l.Specs, l.SlabBytes); w != 0 || l.SlabBytes != 3200*k {
		t.Errorf("%+v wastes %g", l, w)
	}
	l = layoutOf(t, Spec{"full", Full, 700_001, 16, 0, 0}, Spec{"state", State, 3_000_017, 0, 0, 0})
	got := unusedShare(l.Specs, l.SlabBytes)
	for n := int64(5); n*700_001 < 12_000_068; n++ {
		if w := unusedShare(l.Specs, n*700_001); w < got {
			t.Errorf("slab of %d wastes %g, one of %d %g", l.SlabBytes, got, n*700_001, w)
		}
	}
}

// TestSlabsStaySmall: with pages of 17 layers' keys and values and 48 layers of recurrent state, a slab
// of three states would have a slightly smaller unused share. But it would lose far more at the
// arena's end.
func TestSlabsStaySmall(t *testing.T) {
	for _, state := range []int64{77_955_072, 153_944_064, 228_950_016} {
		l := layoutOf(t, Spec{"full", Full, 557_120, 16, 0, 0}, Spec{"state", State, state, 0, 0, 0})
		if l.SlabBytes > state+state/100 || l.PagesPerSlab[1] != 1 || unusedShare(l.Specs, l.SlabBytes) > negligible {
			t.Errorf("state of %d: slab of %d with %v pages wastes %g", state, l.SlabBytes, l.PagesPerSlab, unusedShare(l.Specs, l.SlabBytes))
		}
	}
}

func TestLayoutRefuses(t *testing.T) {
	for field, s := range map[string]Spec{
		"kind":       {Kind: Snapshot + 1, PageBytes: 1, BlockSize: 1},
		"page bytes": {PageBytes: 0, BlockSize: 1},
		"block size": {PageBytes: 1, BlockSize: 0},
		"window":     {Kind: Window, PageBytes: 1, BlockSize: 1},

		"tokens ahead": {Kind: Window, PageBytes: 1, BlockSize: 1, Window: 5, Ahead: 4},
	} {
		var e *SpecError
		if _, err := NewLayout([]Spec{s}); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	var e *SpecError
	if _, err := NewLayout([]Spec{{Name: "x", PageBytes: math.MaxInt64, BlockSize: 1}}); !errors.As(err, &e) {
		t.Error(err)
	}
	for _, s := range []Spec{
		{Kind: Chunk, PageBytes: 1, BlockSize: 4}, {Kind: Chunk, PageBytes: 1, BlockSize: 4, Window: 8, Ahead: 1},
		{Kind: State, PageBytes: 1, BlockSize: 4}, {PageBytes: 1, BlockSize: 4, Ahead: 1}, {Kind: Window, PageBytes: 1, BlockSize: 4, Window: 4, Ahead: -1}, {PageBytes: 1, BlockSize: 4, Window: 4}, {PageBytes: 1, BlockSize: 1 << 21},
	} {
		if _, err := NewLayout([]Spec{s}); err == nil {
			t.Errorf("%+v was taken", s)
		}
	}
	if _, err := NewLayout(nil); err == nil {
		t.Error("a layout without classes was made")
	}
	// Valid alone and absurd together: the result is quick and nothing overflows.
	l := layoutOf(t, Spec{"a", Full, 1, 1, 0, 0}, Spec{"b", Full, 1 << 42, 1 << 20, 0, 0})
	if l.Slabs(math.MaxInt64) != 0 || l.Sequences(l.Slabs(math.MaxInt64), math.MaxInt) != 0 {
		t.Errorf("%+v", l)
	}
}

func TestCapacity(t *testing.T) {
	l := layoutOf(t, Spec{"full", Full, 1 << 20, 16, 0, 0})
	if n := l.Slabs(10<<20 + 5); n != 10 {
		t.Errorf("%d slabs", n)
	}
	if l.Slabs(-1) != 0 || l.Slabs(1<<20-1) != 0 {
		t.Error("slabs out of nothing")
	}
	if n := l.Tokens(10); n != 160 {
		t.Errorf("%d tokens", n)
	}
	for tokens, want := range map[int]int{0: 0, 1: 10, 16: 10, 17: 5, 33: 3, 160: 1, 161: 0} {
		if n := l.Sequences(10, tokens); n != want {
			t.Errorf("%d sequences of %d tokens, want %d", n, tokens, want)
		}
	}
	// A window of 20 tokens reads the 19 before the next one: 16+2 of them begin inside of a block, so
	// at most 3 blocks of 16 are used.
	w := layoutOf(t, Spec{"full", Full, 1 << 20, 16, 0, 0}, Spec{"window", Window, 1 << 20, 16, 20, 0}, Spec{"state", State, 1 << 20, 0, 0, 0})
	for tokens, want := range map[int][3]int{1: {1, 1, 1}, 17: {2, 2, 1}, 33: {3, 3, 1}, 1600: {100, 3, 1}} {
		for c := range want {
			if n := w.SequencePages(c, tokens); n != want[c] {
				t.Errorf("%d tokens take %d pages of class %d, want %d", tokens, n, c, want[c])
			}
		}
	}
	if n := w.Sequences(1040, 1600); n != 10 {
		t.Errorf("%d sequences beside windows and states", n)
	}
	if n := w.SequenceSlabs(1600); n != 100+3+1 {
		t.Errorf("a sequence takes %d slabs", n)
	}
	// Tokens ahead of the window take pages too.
	ahead := layoutOf(t, Spec{"window", Window, 1 << 20, 16, 20, 16})
	for tokens, want := range map[int]int{1: 1, 33: 3, 49: 4, 1600: 4} {
		if n := ahead.SequencePages(0, tokens); n != want {
			t.Errorf("%d tokens and those ahead take %d pages, want %d", tokens, n, want)
		}
	}
	// A chunk of 32 tokens takes two blocks. One of 24 may begin and end inside of one: 8 to 56.
	for _, c := range []struct{ chunk, tokens, want int }{{32, 31, 2}, {32, 33, 2}, {32, 1600, 2}, {24, 24, 2}, {24, 1600, 2}, {40, 1600, 3}, {20, 1600, 2}, {18, 1600, 2}, {9, 1600, 2}, {7, 7, 1}} {
		l := layoutOf(t, Spec{"chunk", Chunk, 1 << 20, 16, c.chunk, 0})
		if n := l.SequencePages(0, c.tokens); n != c.want {
			t.Errorf("%d tokens in chunks of %d take %d pages, want %d", c.tokens, c.chunk, n, c.want)
		}
	}
	// With four pages a slab the window's three pages may be in two slabs.
	small := layoutOf(t, Spec{"full", Full, 1 << 18, 16, 0, 0}, Spec{"window", Window, 1 << 18, 16, 20, 0})
	for tokens, want := range map[int]int{1: 2, 1600: 25 + 2} {
		if n := small.SequenceSlabs(tokens); n != want {
			t.Errorf("a sequence of %d tokens takes %d slabs of four pages, want %d", tokens, n, want)
		}
	}
}

// TestCapacityIsReal: with one class, exactly as many sequences fit as the layout computes.
func TestCapacityIsReal(t *testing.T) {
	l := layoutOf(t, fullSpec)
	for _, tokens := range []int{1, 4, 5, 30} {
		p := NewPool(l, 7, false)
		n := 0
		for ; p.Extend(p.NewTable(""), 0, tokens, tokens); n++ {
		}
		if want := l.Sequences(7, tokens); n != want {
			t.Errorf("%d sequences of %d tokens fit, promised are %d", n, tokens, want)
		}
	}
}

func FuzzLayout(f *testing.F) {
	f.Add(int64(1000), 16, int64(3000), 8, 100, int64(1<<40), 5000)
	f.Fuzz(func(t *testing.T, a int64, blockA int, b int64, blockB, window int, bytes int64, tokens int) {
		l, err := NewLayout([]Spec{{"a", Full, a, blockA, 0, 0}, {"b", Window, b, blockB, window, 0}, {"c", Chunk, b, blockA, window, 0}})
		if err != nil {
			return
		}
		for c, s := range l.Specs {
			if per := int64(l.PagesPerSlab[c]); per < 1 || per*s.PageBytes > l.SlabBytes || (per+1)*s.PageBytes <= l.SlabBytes {
				t.Fatalf("%+v", l)
			}
		}
		n := l.Slabs(bytes)
		if n < 0 || int64(n) > max(0, bytes)/l.SlabBytes || l.Sequences(n, tokens) < 0 || l.Tokens(n) < 0 || l.SequenceSlabs(tokens) < 0 {
			t.Fatalf("%+v: %d slabs", l, n)
		}
	})
}

// TestFirstBlock compares the first block that a position reads with the positions that it sees.
func TestFirstBlock(t *testing.T) {
	for _, s := range []Spec{{Kind: Full, BlockSize: 4}, {Kind: Window, Window: 6, BlockSize: 4}, {Kind: Chunk, Window: 12, BlockSize: 4}, {Kind: Chunk, Window: 10, BlockSize: 4}, {Kind: Chunk, Window: 3, BlockSize: 8}} {
		for pos := range 60 {
			first := 0
			switch s.Kind {
			case Window:
				first = max(0, pos-s.Window+1)
			case Chunk:
				first = pos - pos%s.Window
			}
			if got := s.firstBlock(pos); got != first/s.BlockSize {
				t.Errorf("%v of %d: position %d reads from block %d on, want %d", s.Kind, s.Window, pos, got, first/s.BlockSize)
			}
		}
	}
}

// TestStage: a stage has the pipeline's pages a slab for the classes that it has, in the smallest slab
// that holds them.
func TestStage(t *testing.T) {
	whole, err := NewLayout([]Spec{
		{Name: "full", Kind: Full, PageBytes: 640 << 10, BlockSize: 16},
		{Name: "window", Kind: Window, PageBytes: 192 << 10, BlockSize: 16, Window: 512},
		{Name: "state", Kind: State, PageBytes: 1 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := whole.Stage([]Spec{{Name: "window", Kind: Window, PageBytes: 64 << 10, BlockSize: 16, Window: 512}, {Name: "state", Kind: State, PageBytes: 128 << 10}})
	if err != nil {
		t.Fatal(err)
	}
	window, state := whole.PagesPerSlab[1], whole.PagesPerSlab[2]
	if l.PagesPerSlab[0] != window || l.PagesPerSlab[1] != state || l.SlabBytes != max(int64(window)*64<<10, int64(state)*128<<10) {
		t.Errorf("%+v of %+v", l, whole)
	}
	for _, wrong := range [][]Spec{nil, {{Name: "chunk", Kind: Full, PageBytes: 1, BlockSize: 16}}, {{Name: "full", Kind: Full, BlockSize: 16}}} {
		if _, err := whole.Stage(wrong); err == nil {
			t.Errorf("a stage of %+v", wrong)
		}
	}
}
