package kv

import "slices"

// Table holds the page tables of one sequence, one for each class. A sequence keeps its Table
// after Free, so that its block hashes need not be computed again. The tokens of a sequence may
// be appended to but never changed.
type Table struct {
	salt  string
	parts []part // per class
	snaps snapshots
	items []Item  // in order of their positions
	chain [][]Key // hashes of full blocks, for each group of block size
	// With Pool.Record:
	origin Origin
	hashes [][]Hash // of full blocks, for each group
}

// part is the page table of one class.
type part struct {
	pages  []int32 // one for each block; none: the block has no page
	low    int     // blocks below it own no page
	stale  int     // blocks from it to low name released pages that this step still reads
	held   int     // number of owned pages
	sealed int     // blocks below it were offered to the prefix cache
}

// NewTable returns the table of a sequence. Sequences of different salts never share a page.
func (p *Pool) NewTable(salt string) *Table {
	t := &Table{salt: salt, parts: make([]part, len(p.classes)), chain: make([][]Key, len(p.groups))}
	t.snaps = snapshots{class: p.snapClass, table: make([]int32, SnapshotEntries), begin: none, step: none}
	clearTable(t.snaps.table)
	return t
}

// Reserve grows t's slices for a sequence of that many tokens, so that t allocates no Go memory
// up to that length.
func (p *Pool) Reserve(t *Table, tokens int) {
	for i := range t.parts {
		part := &t.parts[i]
		part.pages = slices.Grow(part.pages, max(0, p.classes[i].spec.blocks(tokens)-len(part.pages)))
	}
	for g, size := range p.groups {
		t.chain[g] = slices.Grow(t.chain[g], max(0, tokens/size-len(t.chain[g])))
		if p.changes != nil {
			p.changes.reserve(t, g, tokens/size)
		}
	}
}

// Pages returns the page table of a class: one page number for each block, −1 for a block that
// the window has passed. The table of the snapshot class has other entries. The first is the
// page of the snapshot that the step begins from, in place of the sequence's own state. Then
// follow SnapshotsPerStep pairs: a page that the step stores a snapshot to, and the number of
// tokens after which it does so. −1: no page. The result is for the step that was last prepared
// by Extend and PlanSnapshots, and valid until the Pool changes.
func (t *Table) Pages(class int) []int32 {
	if class == t.snaps.class {
		return t.snaps.table
	}
	return t.parts[class].pages
}

// NumPages returns how many pages t owns, over all classes.
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

// Tables returns how many tables own pages.
func (p *Pool) Tables() int { return len(p.tables) }

// Need adds to need, for each class, the pages that t lacks for a sequence of that many tokens
// at steady state.
func (p *Pool) Need(t *Table, tokens int, need []int) {
	for i := range t.parts {
		need[i] += max(0, p.layout.SequencePages(i, tokens)-t.parts[i].held)
	}
}

// Extend allocates pages for the positions from to to−1 of the next step. Positions from sure
// on are for proposed tokens, which may be rejected: the next Extend may begin anywhere from
// sure to to.
//
// Afterwards every block that a position from sure on reads has a page, and blocks that none of
// them reads are released. t still names released pages that this step reads, until the next
// Extend. Such a page may be reused at once, even by this step, but for the same class only:
// within a step a layer reads its history before it stores new K and V.
//
// It returns false, and allocates nothing, if there are not enough pages. The caller then
// retries with the same from and sure within the same step, or frees t.
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

// grow allocates the pages that t lacks, or none. It reports whether it did.
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

// undoGrow releases what grow allocated for t in the classes up to i.
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

// slideWindow releases the blocks that no position from sure on reads.
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

// Trim releases the pages of blocks that begin at or after position n. Their tokens were
// rejected, and none of the blocks is in the prefix cache.
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

// Free releases all pages of t. Blocks in the prefix cache stay there; those at the end of the
// sequence are evicted first.
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
