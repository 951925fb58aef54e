package kv

import "slices"

// SnapshotsPerStep is how many checkpoints a step leaves of a sequence at most, SnapshotEntries the width
// of a page table of checkpoints.
const (
	SnapshotsPerStep = 2
	SnapshotEntries  = 1 + 2*SnapshotsPerStep
)

// marks is what a Table has to do with checkpoints. Their pages belong to it only while
// a step reads them or until what a step stored to them is committed; afterwards they
// are cached.
type snapshots struct {
	class  int     // its class, none where there is none
	table  []int32 // of the step that was last prepared: see Pages
	begin  int32   // the page that the sequence begins from, owned until the step after
	from   int     // the position that it begins at
	step   int     // the first position of the step that was last prepared
	branch int     // tokens that other classes still held, where there was no checkpoint
	stores []store // in order of their positions
}

// store is an owned page that a step stores the state of the first n tokens to.
type store struct {
	n    int
	page int32
}

// Checkpoints is how many checkpoints that many slabs keep at most, those in use
// included: what a quarter of the arena holds. They cost no sequence anything, since they are
// evicted as cached blocks are; the bound keeps them from driving out the blocks of
// prefixes. 0 where no class keeps any.
func (l Layout) Snapshots(slabs int) int {
	i := l.snapshotClass()
	if i == none || slabs < 1 {
		return 0
	}
	return max(1, slabs/4) * l.PagesPerSlab[i]
}

// SnapshotEvery is at how many tokens' distance checkpoints are left within a sequence: as
// many as take the bytes of one in the classes that keep every token, in whole blocks, but
// not fewer than leastBlocks. 0 where no class keeps any.
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

// leastBlocks keeps the checkpoints of a sequence few where states are small.
const leastBlocks = 16

// marked is the class that keeps checkpoints; none: there is none.
func (l Layout) snapshotClass() int {
	return slices.IndexFunc(l.Specs, func(s Spec) bool { return s.Kind == Snapshot })
}

// Mark chooses the checkpoints that a step leaves which computes t's positions from to
// to−1, all of them for good, and gives t pages for them, at the cost of what is cached:
// the last whole block before the prompt's last token, from which the next turn of a
// conversation and other choices begin; the place up to which other classes held the sequence
// when it was matched, where it parts from another one; and the last multiple of
// SnapshotEvery. Without pages, and where there is one already, none is left. The table
// of the class is valid until the next Extend.
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

// mark takes a page for a checkpoint, within the bound.
func (p *Pool) takeSnapshotPage() (int32, bool) {
	c := &p.classes[p.snapClass]
	if c.used+c.cached < p.maxSnapshots {
		return p.take(p.snapClass)
	}
	n := c.lru.head
	if n == none {
		return none, false
	}
	p.uncache(c, n)
	p.own(c, n)
	return n, true
}

// begin has t begin behind n tokens, of which there is a checkpoint.
func (p *Pool) beginFrom(t *Table, tokens []int32, n int) {
	c := &p.classes[p.snapClass]
	page, _ := p.find(t, c, n/c.spec.BlockSize-1, tokens)
	p.share(c, page)
	t.snaps.begin, t.snaps.from, t.snaps.table[0] = page, n, page
}

// begun prepares t's table of checkpoints for a step that begins at from: the step after
// the first does not read the page that the sequence began from. What is prepared once
// more, for proposed tokens, stays as it is.
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

// Unread says that the state that t goes on from at position n is not in a page of its own
// but in the checkpoint that the sequence begins from, which no step has read yet.
func (t *Table) Unread(n int) bool { return t.snaps.begin != none && n == t.snaps.from }

func clearTable(table []int32) {
	for i := range table {
		table[i] = none
	}
}

// latest is the largest length up to n behind which there is a checkpoint.
func (p *Pool) latestSnapshot(t *Table, tokens []int32, n int) int {
	c := &p.classes[p.snapClass]
	for b := n/c.spec.BlockSize - 1; b >= 0; b-- {
		if _, ok := p.find(t, c, b, tokens); ok {
			return (b + 1) * c.spec.BlockSize
		}
	}
	return 0
}

// sealMarks makes findable the checkpoints behind at most done tokens, and gives their
// pages up.
func (p *Pool) sealSnapshots(t *Table, tokens []int32, done int) {
	m := &t.snaps
	k := 0
	for ; k < len(m.stores) && m.stores[k].n <= done; k++ {
		s, c := m.stores[k], &p.classes[p.snapClass]
		key := p.key(t, c.group, s.n/c.spec.BlockSize-1, tokens)
		if _, taken := c.byKey[key]; !taken {
			c.byKey[key] = s.page
			c.pages[s.page].hashed, c.pages[s.page].key = true, key
		}
		p.release(c, s.page)
	}
	if m.stores = append(m.stores[:0], m.stores[k:]...); k > 0 && len(m.stores) == 0 {
		p.unlist(t)
	}
}

// abandon gives up all pages that checkpoints are yet to be stored to, or were in a step
// that is not committed: sequences need them. False: there were none.
func (p *Pool) abandonSnapshots() bool {
	some := len(p.storing) > 0
	for len(p.storing) > 0 {
		p.dropSnapshots(p.storing[len(p.storing)-1])
	}
	return some
}

// drop gives up the pages that t has for checkpoints yet to be committed.
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

// freeMarks gives up all of t's pages of checkpoints.
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

// owned adds the pages that t owns in the class to refs.
func (m *snapshots) countOwned(refs []int32) {
	for _, s := range m.stores {
		refs[s.page]++
	}
	if m.begin != none {
		refs[m.begin]++
	}
}
