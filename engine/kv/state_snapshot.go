package kv

import "slices"

// A state snapshot is a copy of a sequence's recurrent state after some number of its tokens.
// Sequences with the same prefix continue from it. SnapshotsPerStep is the most snapshots that a
// step stores for a sequence, SnapshotEntries the width of a page table of snapshots.
const (
	SnapshotsPerStep = 2
	SnapshotEntries  = 1 + 2*SnapshotsPerStep
)

// snapshots is the part of a Table about snapshots. The Table owns a snapshot's page while a
// step reads it, or until the step that stored it is committed. Afterwards the page is cached.
type snapshots struct {
	class  int     // the snapshot class, or none
	table  []int32 // page table of the step that was last prepared: see Pages
	begin  int32   // the snapshot that the sequence begins from, owned until the following step
	from   int     // the position that the sequence begins at
	step   int     // the first position of the step that was last prepared
	branch int     // length of the prefix that the other classes had cached when Match was called
	stores []store // in order of their positions
}

// store is an owned page that a step stores the state after the first n tokens to.
type store struct {
	n    int
	page int32
}

// Snapshots returns the most snapshots that a pool of that many slabs keeps, those in use
// included: a quarter of the arena. They take nothing from sequences, since they are evicted
// like cached blocks; the limit keeps them from evicting the blocks of prefixes. It is 0 without
// a snapshot class.
func (l Layout) Snapshots(slabs int) int {
	i := l.snapshotClass()
	if i == none || slabs < 1 {
		return 0
	}
	return max(1, slabs/4) * l.PagesPerSlab[i]
}

// SnapshotEvery returns the number of tokens between two snapshots of a sequence: as many as
// take the bytes of a snapshot in the Full classes, in whole blocks, at least leastBlocks. It is
// 0 without a snapshot class.
func (l Layout) SnapshotEvery() int {
	i := l.snapshotClass()
	if i == none {
		return 0
	}
	block, bytes := int64(l.Specs[i].BlockSize), int64(0)
	for _, s := range l.Specs {
		if s.Kind == Full {
			bytes += s.PageBytes * block / int64(s.BlockSize)
		}
	}
	n := int64(leastBlocks)
	if bytes > 0 {
		n = max(n, (l.Specs[i].PageBytes+bytes-1)/bytes)
	}
	return int(n * block)
}

// leastBlocks is the least number of blocks between two snapshots, however small states are.
const leastBlocks = 16

// snapshotClass returns the index of the snapshot class, or none.
func (l Layout) snapshotClass() int {
	return slices.IndexFunc(l.Specs, func(s Spec) bool { return s.Kind == Snapshot })
}

// PlanSnapshots chooses the snapshots that the next step stores. The step computes t's
// positions from to to−1, none of them proposed. It allocates pages for at most
// SnapshotsPerStep snapshots, after these numbers of tokens:
//   - the last whole block before the prompt's last token, from which the next turn of a
//     conversation and the request's other choices begin;
//   - the prefix that the other classes had cached at Match, where this sequence branches off
//     from another;
//   - the last multiple of SnapshotEvery.
//
// Pages may come from cached ones. A snapshot that exists, or for which there is no page, is
// skipped. The table of the class is valid until the next Extend.
func (p *Pool) PlanSnapshots(t *Table, tokens []int32, from, to, prompt int) {
	if p.snapClass == none || !p.caching {
		return
	}
	c := &p.classes[p.snapClass]
	block := c.spec.BlockSize
	left := 0
	for _, n := range [...]int{(prompt - 1) / block * block, t.snaps.branch, to / p.snapshotEvery * p.snapshotEvery} {
		again := slices.ContainsFunc(t.snaps.stores, func(s store) bool { return s.n == n })
		if n <= from || n > to || again || left == SnapshotsPerStep {
			continue
		}
		if n <= len(tokens) {
			if _, ok := p.find(t, c, n/block-1, tokens); ok {
				continue
			}
		}
		page, ok := p.takeSnapshotPage()
		if !ok {
			return
		}
		p.tables[t] = struct{}{}
		if len(t.snaps.stores) == 0 {
			p.storing = append(p.storing, t)
		}
		t.snaps.stores = append(t.snaps.stores, store{n, page})
		t.snaps.table[1+2*left], t.snaps.table[2+2*left] = page, int32(n)
		left++
	}
	slices.SortFunc(t.snaps.stores, func(a, b store) int { return a.n - b.n })
}

// takeSnapshotPage allocates a page for a snapshot within maxSnapshots, or reuses that of the
// least recently used snapshot.
func (p *Pool) takeSnapshotPage() (int32, bool) {
	c := &p.classes[p.snapClass]
	if c.used+c.cached < p.maxSnapshots {
		return p.take(p.snapClass)
	}
	n := c.lru.head
	if n == none {
		return none, false
	}
	p.uncache(p.snapClass, n)
	p.own(c, n)
	return n, true
}

// beginFrom makes t begin after n tokens, for which a snapshot is cached.
func (p *Pool) beginFrom(t *Table, tokens []int32, n int) {
	c := &p.classes[p.snapClass]
	page, _ := p.find(t, c, n/c.spec.BlockSize-1, tokens)
	p.share(c, page)
	t.snaps.begin, t.snaps.from, t.snaps.table[0] = page, n, page
}

// prepareSnapshots prepares t's snapshot table for a step that begins at from. It releases the
// snapshot that the sequence began from, once a later step begins. A second call for the same
// step, for proposed tokens, changes nothing.
func (p *Pool) prepareSnapshots(t *Table, from int) {
	if p.snapClass == none || t.snaps.step == from {
		return
	}
	t.snaps.step = from
	if t.snaps.begin != none && from > t.snaps.from {
		p.release(&p.classes[p.snapClass], t.snaps.begin)
		t.snaps.begin = none
	}
	clearTable(t.snaps.table)
	t.snaps.table[0] = t.snaps.begin
}

// Unread reports whether the state with which t continues at position n is still in the
// snapshot that the sequence begins from, which no step has read yet.
func (t *Table) Unread(n int) bool { return t.snaps.begin != none && n == t.snaps.from }

func clearTable(table []int32) {
	for i := range table {
		table[i] = none
	}
}

// latestSnapshot returns the largest length up to n that has a cached snapshot.
func (p *Pool) latestSnapshot(t *Table, tokens []int32, n int) int {
	c := &p.classes[p.snapClass]
	for b := n/c.spec.BlockSize - 1; b >= 0; b-- {
		if _, ok := p.find(t, c, b, tokens); ok {
			return (b + 1) * c.spec.BlockSize
		}
	}
	return 0
}

// sealSnapshots enters the snapshots after at most done tokens into the prefix cache and
// releases their pages.
func (p *Pool) sealSnapshots(t *Table, tokens []int32, done int) {
	m := &t.snaps
	k := 0
	for ; k < len(m.stores) && m.stores[k].n <= done; k++ {
		s, c := m.stores[k], &p.classes[p.snapClass]
		key := p.key(t, c.group, s.n/c.spec.BlockSize-1, tokens)
		if _, taken := c.byKey[key]; !taken {
			c.byKey[key] = s.page
			c.pages[s.page].hashed, c.pages[s.page].key = true, key
			p.stored(t, p.snapClass, s.n/c.spec.BlockSize-1, s.page, tokens)
		}
		p.release(c, s.page)
	}
	if m.stores = append(m.stores[:0], m.stores[k:]...); k > 0 && len(m.stores) == 0 {
		p.unlist(t)
	}
}

// abandonSnapshots releases the pages of all uncommitted snapshots, since sequences need them.
// It returns false if there were none.
func (p *Pool) abandonSnapshots() bool {
	some := len(p.storing) > 0
	for len(p.storing) > 0 {
		p.dropSnapshots(p.storing[len(p.storing)-1])
	}
	return some
}

// dropSnapshots releases the pages of t's uncommitted snapshots.
func (p *Pool) dropSnapshots(t *Table) {
	if len(t.snaps.stores) == 0 {
		return
	}
	for _, s := range t.snaps.stores {
		p.release(&p.classes[p.snapClass], s.page)
	}
	t.snaps.stores = t.snaps.stores[:0]
	clearTable(t.snaps.table[1:])
	p.unlist(t)
}

func (p *Pool) unlist(t *Table) {
	i := slices.Index(p.storing, t)
	p.storing = slices.Delete(p.storing, i, i+1)
}

// freeSnapshots releases all snapshot pages of t.
func (p *Pool) freeSnapshots(t *Table) {
	if p.snapClass == none {
		return
	}
	p.dropSnapshots(t)
	if t.snaps.begin != none {
		p.release(&p.classes[p.snapClass], t.snaps.begin)
	}
	clearTable(t.snaps.table)
	t.snaps.begin, t.snaps.branch, t.snaps.step = none, 0, none
}

// countOwned adds one to refs for each snapshot page that the table owns.
func (m *snapshots) countOwned(refs []int32) {
	for _, s := range m.stores {
		refs[s.page]++
	}
	if m.begin != none {
		refs[m.begin]++
	}
}
