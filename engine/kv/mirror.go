package kv

// Move is a page whose content goes to a page of another pool of the same layout.
type Move struct {
	Class    int
	From, To int32
}

// Mirror gives t, which has no pages, one for every page of like that positions from
// sent on read. like is the table of a sequence, of its first sent positions at
// least, in another pool of the same layout. What of tokens, the sequence's, the cache
// holds in full blocks is shared; for every other page a Move is appended to moves,
// and whoever made the pages performs them before anything reads or stores there.
// False: like lacks a page that is read, or p has too few; t has none then.
func (p *Pool) Mirror(t, like *Table, sent int, tokens []int32, moves []Move) ([]Move, bool) {
	for range 2 {
		if !p.planMirror(t, like, sent, tokens) || !p.Fits(p.need) {
			p.Free(t)
			return moves, false
		}
		if more, ok := p.takeMirror(t, like, moves); ok {
			return more, true
		}
		// Fits counts on cached pages that were in the way of another class.
		p.Free(t)
		p.EvictAll()
	}
	return moves, false
}

// place lays t out as like is at sent, with the pages that the cache has and none in
// place of the others, which p.need counts. False: like lacks one.
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

// mirror takes the pages that place left out. False: a class found none.
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

// shared is the cached page of block b, now owned by one more; none where there is none
// or the block is not full at sent.
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

// Shared is how many of t's pages others own too, of how many it owns.
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
