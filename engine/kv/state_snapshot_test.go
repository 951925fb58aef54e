package kv

import (
	"slices"
	"testing"
)

// marked returns a table whose tokens are computed in one step, with the snapshots of a prompt, and
// sealed.
func marked(t testing.TB, p *Pool, salt string, tokens []int32) *Table {
	t.Helper()
	tab, n := p.NewTable(salt), len(tokens)
	from := p.Match(tab, tokens)
	if !p.Extend(tab, from, n, n) {
		t.Fatal("no room")
	}
	p.PlanSnapshots(tab, tokens, from, n, n)
	p.Seal(tab, tokens, n)
	return tab
}

func states(t testing.TB, slabs int) *Pool {
	return NewPool(layoutOf(t, fullSpec, stateSpec, markSpec), slabs, true)
}

func other(n, at int) []int32 {
	tokens := ids(n, 0)
	for i := at; i < n; i++ {
		tokens[i] = 99
	}
	return tokens
}

// TestMatchWithStates: a prefix is reused only up to a snapshot.
func TestMatchWithStates(t *testing.T) {
	p := states(t, 40)
	p.Free(marked(t, p, "", ids(23, 0)))
	for _, c := range []struct {
		name, salt string
		tokens     []int32
		want       int
		branch     int
	}{
		{"the same", "", ids(23, 0), 20, 20},
		{"never all", "", ids(20, 0), 0, 16},
		{"longer", "", ids(40, 0), 20, 20},
		{"another end", "", other(30, 14), 0, 12},
		{"another salt", "s", ids(23, 0), 0, 0},
	} {
		tab := p.NewTable(c.salt)
		n := p.Match(tab, c.tokens)
		if n != c.want || tab.snaps.branch != c.branch || (tab.Pages(2)[0] >= 0) != (n > 0) {
			t.Errorf("%s: matched %d and %d without a checkpoint, want %d and %d; begins from page %d", c.name, n, tab.snaps.branch, c.want, c.branch, tab.Pages(2)[0])
		}
		p.Free(tab)
	}
}

// TestSnapshotWherePromptsDiverge: the second prompt with a common prefix stores a snapshot at its end,
// from which the third begins.
func TestSnapshotWherePromptsDiverge(t *testing.T) {
	p := states(t, 40)
	p.Free(marked(t, p, "", ids(30, 0)))
	p.Free(marked(t, p, "", other(30, 14)))
	tab := p.NewTable("")
	if n := p.Match(tab, other(40, 13)); n != 12 {
		t.Errorf("the third begins behind %d tokens, want 12", n)
	}
	p.Free(tab)
	off := NewPool(layoutOf(t, fullSpec, stateSpec), 40, true)
	off.Free(filled(t, off, "", ids(30, 0)))
	if n := off.Match(off.NewTable(""), ids(30, 0)); n != 0 {
		t.Errorf("without checkpoints %d tokens matched", n)
	}
}

// TestSnapshotPages: the snapshot that a step begins from is owned for that step, and one that it stores
// until the step is committed. Sequences that lack pages take back uncommitted ones.
func TestSnapshotPages(t *testing.T) {
	p := states(t, 12)
	p.Free(marked(t, p, "", ids(23, 0)))
	if u := p.Usage(2); u.Used != 0 || u.Cached != 1 {
		t.Fatalf("%+v", u)
	}
	tokens := ids(40, 0)
	tab := p.NewTable("")
	n := p.Match(tab, tokens)
	for _, c := range []struct{ from, to, begins, stores int }{{n, 30, 1, 0}, {30, 31, 0, 0}, {31, 40, 0, 1}} {
		if !p.Extend(tab, c.from, c.to, c.to) {
			t.Fatal("no room")
		}
		p.PlanSnapshots(tab, tokens, c.from, c.to, 37)
		table := tab.Pages(2)
		pages := 0
		for _, at := range []int{1, 3} {
			if table[at] >= 0 {
				pages++
			}
		}
		if (table[0] >= 0) != (c.begins == 1) || pages != c.stores || c.stores == 1 && table[2] != 36 {
			t.Errorf("positions from %d to %d: %v", c.from, c.to, table)
		}
		if err := p.Check(); err != nil {
			t.Error(err)
		}
	}
	if u := p.Usage(2); u.Used != 1 || tab.NumPages() != 12 {
		t.Errorf("before the commit %+v, %d pages held", u, tab.NumPages())
	}
	p.Seal(tab, tokens, 35)
	if u := p.Usage(2); u.Used != 1 {
		t.Errorf("a checkpoint of 36 tokens is sealed when 35 are known: %+v", u)
	}
	again := p.NewTable("again")
	if !p.Extend(again, 0, 12, 12) {
		t.Fatal("no room")
	}
	p.PlanSnapshots(again, ids(12, 0), 0, 12, 12)
	p.Free(again)
	if err := p.Check(); err != nil || p.Usage(2).Used != 1 {
		t.Errorf("%v: %+v after a sequence was freed before its commit", err, p.Usage(2))
	}
	// Other sequences take all remaining pages.
	rest := p.NewTable("rest")
	for n := 4; p.Extend(rest, n-4, n, n); n += 4 {
	}
	if err := p.Check(); err != nil || len(tab.snaps.stores) != 0 || slices.Max(tab.Pages(2)) != none || p.Usage(2).Used != 0 {
		t.Errorf("%v: %+v keeps a page that another sequence lacks", err, tab.snaps)
	}
	p.Seal(tab, tokens, 40)
	p.Free(tab)
	p.Free(rest)
	if err := p.Check(); err != nil || len(p.tables) != 0 {
		t.Error(err)
	}
}

// TestSnapshotsAreBounded: snapshots take at most a quarter of the arena; the least recently used are
// evicted first.
func TestSnapshotsAreBounded(t *testing.T) {
	p := states(t, 40)
	most := p.Layout().Snapshots(40)
	if most != 10*p.Layout().PagesPerSlab[2] {
		t.Fatalf("%d checkpoints at most", most)
	}
	for i := range most + 1 {
		p.Free(marked(t, p, string(rune('a'+i)), ids(9, 0)))
	}
	if u := p.Usage(2); u.Cached != most {
		t.Errorf("%+v", u)
	}
	for salt, want := range map[string]int{"a": 0, "b": 8} {
		tab := p.NewTable(salt)
		if n := p.Match(tab, ids(20, 0)); n != want {
			t.Errorf("%s: matched %d", salt, n)
		}
		p.Free(tab)
	}
}

// TestSnapshotEvery: the distance is that of as many bytes of keys and values as a snapshot has, or 16
// blocks.
func TestSnapshotEvery(t *testing.T) {
	small := Spec{Name: "full", Kind: Full, PageBytes: 1 << 20, BlockSize: 16}
	for _, c := range []struct {
		bytes int64
		specs []Spec
		want  int
	}{
		{100<<20 + 1, []Spec{small}, 101 * 16},
		{5 << 20, []Spec{small}, 256},
		{100 << 20, []Spec{small, small}, 50 * 16},
		{100 << 20, nil, 256},
	} {
		l := layoutOf(t, append(slices.Clone(c.specs), Spec{Name: "state", Kind: State, PageBytes: c.bytes}, Spec{Name: "c", Kind: Snapshot, PageBytes: c.bytes, BlockSize: 16})...)
		if n := l.SnapshotEvery(); n != c.want {
			t.Errorf("%d bytes: every %d tokens, want %d", c.bytes, n, c.want)
		}
	}
}
