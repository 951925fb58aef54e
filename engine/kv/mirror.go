package kv

// Move copies a page to a page of another pool of the same layout.
type Move struct {
	Class    int
	From, To int32
}

// Mirror allocates in t, which has no pages, a page for each page of like that is needed to
// continue at position sent. like is the same sequence's table in another pool of the same
// layout. Full blocks of tokens that are in p's prefix cache are shared. For every other page a
// Move is appended to moves; the caller performs them before a step uses the pages. It returns
// false, and allocates nothing, if like lacks a needed page or p has too few.
func (p *Pool) Mirror(t, like *Table, sent int, tokens []int32, moves []Move) ([]Move, bool) {
	for range 2 {
		if !p.planMirror(t, like, sent, tokens) || !p.Fits(p.need) {
			p.Free(t)
			return moves, false
		}
		if more, ok := p.takeMirror(t, like, moves); ok {
			return more, true
		}
		// Fits counted cached pages that take slabs which another class needs.
		p.Free(t)
		p.EvictAll()
	}
	return moves, false
}

// planMirror fills t's page tables with the cached pages and with none for the others, which it
// counts in p.need. It returns false if like lacks a needed page.
func (p *Pool) planMirror(t, like *Table, sent int, tokens []int32) bool {
	p.tables[t] = struct{}{}
	for i := range t.parts {
		c, part, from := &p.classes[i], &t.parts[i], like.parts[i].pages
		end := c.spec.blocks(sent)
		part.low = min(c.spec.firstBlock(sent), end)
		part.stale = part.low
		p.need[i] = 0
		if end > len(from) {
			return false
		}
		for b := range end {
			n := int32(none)
			if b >= part.low && from[b] == none {
				return false
			}
			if b >= part.low {
				n = p.shareCached(t, c, b, sent, tokens)
			}
			part.pages = append(part.pages, n)
			if n != none {
				part.held++
			} else if b >= part.low {
				p.need[i]++
			}
		}
	}
	return true
}

// takeMirror allocates the pages that planMirror left out. It returns false if a class has none
// left.
func (p *Pool) takeMirror(t, like *Table, moves []Move) ([]Move, bool) {
	for i := range t.parts {
		part := &t.parts[i]
		for b := part.low; b < len(part.pages); b++ {
			if part.pages[b] != none {
				continue
			}
			n, ok := p.take(i)
			if !ok {
				return nil, false
			}
			part.pages[b] = n
			part.held++
			moves = append(moves, Move{Class: i, From: like.parts[i].pages[b], To: n})
		}
	}
	return moves, true
}

// shareCached adds an owner to the cached page of block b and returns the page. It returns none
// if the block is not cached or not full at sent.
func (p *Pool) shareCached(t *Table, c *class, b, sent int, tokens []int32) int32 {
	if !p.caching || c.group == none || (b+1)*c.spec.BlockSize > sent {
		return none
	}
	n, ok := p.find(t, c, b, tokens)
	if !ok {
		return none
	}
	p.share(c, n)
	return n
}

// SharedPages returns how many pages t owns, and how many of these have other owners too.
func (p *Pool) SharedPages(t *Table) (shared, held int) {
	for i := range t.parts {
		part := &t.parts[i]
		for b := part.low; b < len(part.pages); b++ {
			if n := part.pages[b]; n != none && p.classes[i].pages[n].refs > 1 {
				shared++
			}
		}
		held += part.held
	}
	return shared, held
}
