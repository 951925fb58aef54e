package kv

import "slices"

// Table holds the pages of one sequence, in every class. A Table is made once
// per sequence and survives Free, so that the block hashes it has computed
// are not computed again when the sequence comes back: a sequence's tokens may be
// appended to, never changed.
type Table struct {
	salt  string
	parts []part // per class
	snaps snapshots
	chain [][]Key // per group of block size: hashes of full blocks
}

// part is a Table in one class.
type part struct {
	pages  []int32 // one a block; none where it has no page
	low    int     // blocks below it own no page
	stale  int     // blocks from it to low still name the page that this step reads
	held   int     // pages owned
	sealed int     // blocks below it were offered to the cache
}

// NewTable makes the table of a sequence. Sequences of different salt never share
// a page.
func (p *Pool) NewTable(salt string) *Table {
	t := &Table{salt: salt, parts: make([]part, len(p.classes)), chain: make([][]Key, len(p.groups))}
	t.snaps = snapshots{class: p.snapClass, table: make([]int32, SnapshotEntries), begin: none, step: none}
	clearTable(t.snaps.table)
	return t
}

// Reserve makes room for the pages and keys of a sequence of that many tokens: up to there
// t allocates nothing.
func (p *Pool) Reserve(t *Table, tokens int) {
	for i := range t.parts {
		part := &t.parts[i]
		part.pages = slices.Grow(part.pages, max(0, p.classes[i].spec.blocks(tokens)-len(part.pages)))
	}
	for g, size := range p.groups {
		t.chain[g] = slices.Grow(t.chain[g], max(0, tokens/size-len(t.chain[g])))
	}
}

// Pages is the page table of a class: one page number a block, −1 where a
// window has left the block behind. Of checkpoints it is the page that the step begins
// from in place of the sequence's own state, then SnapshotsPerStep pairs of a page that it stores a
// state to and of how many tokens that is the state; −1: no page. It is for the step that
// was last prepared by Extend and Mark, and valid until the Pool changes.
func (t *Table) Pages(class int) []int32 {
	if class == t.snaps.class {
		return t.snaps.table
	}
	return t.parts[class].pages
}

// Held is how many pages t owns, over all classes.
func (t *Table) NumPages() int {
	n := len(t.snaps.stores)
	if t.snaps.begin != none {
		n++
	}
	for i := range t.parts {
		n += t.parts[i].held
	}
	return n
}

// Tables is how many tables own pages.
func (p *Pool) Tables() int { return len(p.tables) }

// Need adds to need what the table lacks to hold a sequence of that many tokens
// at steady state.
func (p *Pool) Need(t *Table, tokens int, need []int) {
	for i := range t.parts {
		need[i] += max(0, p.layout.SequencePages(i, tokens)-t.parts[i].held)
	}
}

// Extend prepares the computing of positions from to to−1, those from sure on for
// proposed tokens: the next Extend may begin anywhere from sure to to. Every block
// that a position from sure on reads has a page, and what none reads is released.
// Pages that only this step still reads are released already, though t names them
// until the next Extend: a step reads a layer's history before it stores the layer's
// new K and V, so that even this step may store into them, for the same class. False: there are not enough
// pages and t got none; the caller asks again for the same from and sure within
// the same step, or frees t.
func (p *Pool) Extend(t *Table, from, sure, to int) bool {
	p.prepareSnapshots(t, from)
	lacking := false
	for i := range t.parts {
		c, part := &p.classes[i], &t.parts[i]
		p.slideWindow(c, part, from, sure)
		p.need[i] = 0
		if end := c.spec.blocks(to); end > len(part.pages) {
			p.need[i] = end - max(len(part.pages), c.spec.firstBlock(sure))
			lacking = true
		}
	}
	if !lacking {
		return true
	}
	if !p.Fits(p.need) && !(p.abandonSnapshots() && p.Fits(p.need)) {
		return false
	}
	p.tables[t] = struct{}{}
	return p.grow(t, sure, to, p.take) || p.grow(t, sure, to, p.takeCompact)
}

// grow gives t the pages that it lacks, or none.
func (p *Pool) grow(t *Table, sure, to int, take func(ci int) (int32, bool)) bool {
	for i := range t.parts {
		c, part := &p.classes[i], &t.parts[i]
		p.was[i] = len(part.pages)
		end := c.spec.blocks(to)
		for b := len(part.pages); b < end; b++ {
			if b < c.spec.firstBlock(sure) {
				part.pages = append(part.pages, none)
				continue
			}
			n, ok := take(i)
			if !ok {
				p.undoGrow(t, i)
				return false
			}
			part.pages = append(part.pages, n)
			part.held++
		}
	}
	return true
}

// undo takes back what grow gave t in classes up to i.
func (p *Pool) undoGrow(t *Table, i int) {
	for k := range i + 1 {
		c, part := &p.classes[k], &t.parts[k]
		for b := len(part.pages) - 1; b >= p.was[k]; b-- {
			if n := part.pages[b]; n != none {
				part.held--
				p.release(c, n)
			}
		}
		part.pages = part.pages[:p.was[k]]
	}
}

// slide releases the blocks that no position from sure on reads.
func (p *Pool) slideWindow(c *class, t *part, from, sure int) {
	for ; t.low < min(c.spec.firstBlock(sure), len(t.pages)); t.low++ {
		if n := t.pages[t.low]; n != none {
			t.held--
			if t.low >= c.spec.firstBlock(from) {
				p.pin(n / c.per)
			}
			p.release(c, n)
		}
	}
	for ; t.stale < min(c.spec.firstBlock(from), len(t.pages)); t.stale++ {
		t.pages[t.stale] = none
	}
}

// Trim gives back the pages of blocks that begin at position n or behind it: what they
// hold was taken back, and none of it is findable.
func (p *Pool) Trim(t *Table, n int) {
	for i := range t.parts {
		c, part := &p.classes[i], &t.parts[i]
		if c.spec.Kind == State {
			continue
		}
		for b := len(part.pages) - 1; b >= c.spec.blocks(n); b-- {
			if page := part.pages[b]; page != none && b >= part.low {
				part.held--
				p.release(c, page)
			}
			part.pages = part.pages[:b]
		}
	}
}

// Free gives all pages back. What is findable stays so, the beginning of the
// sequence longest.
func (p *Pool) Free(t *Table) {
	for i := range t.parts {
		c, held := &p.classes[i], t.parts[i]
		for b := len(held.pages) - 1; b >= held.low; b-- {
			if n := held.pages[b]; n != none {
				p.release(c, n)
			}
		}
		t.parts[i] = part{pages: held.pages[:0]}
	}
	p.freeSnapshots(t)
	delete(p.tables, t)
}
