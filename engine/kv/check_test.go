package kv

import "testing"

// TestCheckSees: Check reports every kind of inconsistency.
func TestCheckSees(t *testing.T) {
	for name, spoil := range map[string]func(p *Pool, owned *Table, cached int32){
		"owners":       func(p *Pool, a *Table, _ int32) { p.classes[0].pages[a.Pages(0)[0]].refs++ },
		"lost page":    func(p *Pool, a *Table, _ int32) { a.parts[0].pages = a.parts[0].pages[:1]; a.parts[0].held = 1 },
		"held":         func(p *Pool, a *Table, _ int32) { a.parts[0].held++ },
		"foreign page": func(p *Pool, a *Table, _ int32) { a.parts[0].pages[0] = 1 << 20 },
		"cached owned": func(p *Pool, a *Table, n int32) { a.parts[0].pages[0] = n },
		"free owned":   func(p *Pool, a *Table, _ int32) { p.slabs[a.Pages(0)[0]/p.classes[0].per].free = a.Pages(0)[0] },
		"bump":         func(p *Pool, a *Table, _ int32) { p.slabs[a.Pages(0)[0]/p.classes[0].per].bump-- },
		"lru":          func(p *Pool, _ *Table, n int32) { p.classes[0].lru = empty },
		"key":          func(p *Pool, _ *Table, n int32) { p.classes[0].pages[n].key[3]++ },
		"not hashed":   func(p *Pool, _ *Table, n int32) { p.classes[0].pages[n].hashed = false },
		"findable":     func(p *Pool, _ *Table, n int32) { p.classes[0].byKey[Key{9}] = n },
		"used":         func(p *Pool, _ *Table, _ int32) { p.classes[0].used++ },
		"slab used":    func(p *Pool, _ *Table, n int32) { p.slabs[n/p.classes[0].per].used++ },
		"slab cached":  func(p *Pool, _ *Table, n int32) { p.slabs[n/p.classes[0].per].cached-- },
		"idle":         func(p *Pool, _ *Table, _ int32) { p.nIdle++ },
		"slab list":    func(p *Pool, _ *Table, n int32) { s := &p.slabs[n/p.classes[0].per]; s.avail = !s.avail },
		"lent":         func(p *Pool, _ *Table, _ int32) { p.classes[0].slabs++ },
		"unlent":       func(p *Pool, _ *Table, _ int32) { p.freeSlabs = p.freeSlabs[1:] },
	} {
		p := NewPool(layoutOf(t, fullSpec), 6, true)
		other := filled(t, p, "other", ids(9, 0))
		cached := other.Pages(0)[0]
		owned := filled(t, p, "", ids(9, 0))
		p.Free(other)
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		spoil(p, owned, cached)
		if p.Check() == nil {
			t.Errorf("%s: not seen", name)
		}
	}
}

// TestCheckSeesSnapshots is TestCheckSees for the pages of snapshots.
func TestCheckSeesSnapshots(t *testing.T) {
	for name, spoil := range map[string]func(m *snapshots){
		"lost begin": func(m *snapshots) { m.begin = none },
		"lost store": func(m *snapshots) { m.stores = nil },
		"shared":     func(m *snapshots) { m.stores[0].page = m.begin },
	} {
		p := NewPool(layoutOf(t, fullSpec, stateSpec, markSpec), 12, true)
		p.Free(marked(t, p, "", ids(17, 0)))
		tab := p.NewTable("")
		if n := p.Match(tab, ids(30, 0)); n != 16 || !p.Extend(tab, n, 30, 30) {
			t.Fatalf("matched %d", n)
		}
		p.PlanSnapshots(tab, ids(30, 0), 16, 30, 30)
		if err := p.Check(); err != nil || len(tab.snaps.stores) != 1 {
			t.Fatal(err, tab.snaps)
		}
		spoil(&tab.snaps)
		if p.Check() == nil {
			t.Errorf("%s: not seen", name)
		}
	}
}

// TestAloneAlwaysFits: in SequenceSlabs slabs one sequence runs to its end with all chunk sizes, once
// cached pages are evicted.
func TestAloneAlwaysFits(t *testing.T) {
	for _, specs := range [][]Spec{
		{fullSpec, windowSpec},
		{fullSpec, fartherSpec},
		{fullSpec, chunkSpec},
		{fullSpec, {"small", Chunk, 60 << 10, 4, 21, 0}, oddSpec},
		{fullSpec, {"small", Window, 60 << 10, 4, 21, 0}, wideSpec},
		{{"small", Full, 60 << 10, 2, 0, 0}, {"window", Window, 130 << 10, 4, 40, 0}, stateSpec},
		{fullSpec, stateSpec, markSpec},
	} {
		for seed := range uint64(6) {
			const tokens = 150
			slabs := layoutOf(t, specs...).SequenceSlabs(tokens)
			s := newSim(t, specs, slabs, seed)
			for range 300 {
				if err := s.step(); err != nil {
					t.Fatal(err)
				}
			}
			for _, q := range s.seqs {
				s.pool.Free(q.t)
			}
			s.pool.EvictAll()
			q := &simSeq{t: s.pool.NewTable("x"), tokens: ids(tokens, 0)}
			for q.done < tokens {
				to := min(tokens, q.done+1+s.rng.IntN(1+s.rng.IntN(30)))
				ok, err := s.compute(q, to, to, 0)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					t.Fatalf("seed %d: %d tokens have no room in %d slabs", seed, to, slabs)
				}
			}
		}
	}
}
