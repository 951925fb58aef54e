package kv

import "fmt"

// Check verifies that every page is either free, cached, or owned by as many tables as it
// counts, and that the counts and lists of slabs agree with their pages. Its time grows with
// the number of pages.
func (p *Pool) Check() error {
	for i := range p.classes {
		if err := p.checkClass(i); err != nil {
			return fmt.Errorf("kv class %s: %w", p.classes[i].spec.Name, err)
		}
	}
	return p.checkSlabs()
}

// checkClass compares the owners that each page of a class counts with the tables.
func (p *Pool) checkClass(ci int) error {
	c := &p.classes[ci]
	refs := make([]int32, len(c.pages))
	for t := range p.tables {
		part, held := &t.parts[ci], 0
		if ci == p.snapClass {
			t.snaps.countOwned(refs)
		}
		for b, n := range part.pages {
			if n == none || b < part.low {
				continue
			}
			if int(n) >= len(refs) || n < 0 {
				return fmt.Errorf("block %d of a table has page %d of %d", b, n, len(refs))
			}
			refs[n]++
			held++
		}
		if held != part.held {
			return fmt.Errorf("a table holds %d pages and counts %d", held, part.held)
		}
	}
	state, err := c.pageStates(p.slabs, int32(ci))
	if err != nil {
		return err
	}
	used, hashed := 0, 0
	for n := range c.pages {
		pg := &c.pages[n]
		if pg.refs != refs[n] {
			return fmt.Errorf("page %d counts %d owners and has %d", n, pg.refs, refs[n])
		}
		if refs[n] > 0 {
			state[n]++
			used++
		}
		if at, ok := c.byKey[pg.key]; pg.hashed && (!ok || at != int32(n)) {
			return fmt.Errorf("page %d cannot be found by its key", n)
		}
		if pg.hashed {
			hashed++
		}
		if state[n] != 1 {
			return fmt.Errorf("page %d is accounted for %d times", n, state[n])
		}
	}
	if used != c.used || hashed != len(c.byKey) {
		return fmt.Errorf("%d pages are owned and %d counted, %d hashed and %d findable", used, c.used, hashed, len(c.byKey))
	}
	return nil
}

// pageStates counts for every page how often it is in the list of cached or free pages.
func (c *class) pageStates(slabs []slab, ci int32) ([]int, error) {
	state := make([]int, len(c.pages))
	cached := 0
	for n, prev := c.lru.head, int32(none); n != none; n, prev = c.links[n].next, n {
		if !c.pages[n].hashed || c.links[n].prev != prev || cached > len(c.pages) {
			return nil, fmt.Errorf("page %d is in the LRU list by mistake", n)
		}
		state[n]++
		cached++
	}
	if cached != c.cached {
		return nil, fmt.Errorf("%d pages are cached and %d counted", cached, c.cached)
	}
	for i := range slabs {
		s := &slabs[i]
		first, bump := int32(i)*c.per, s.bump
		if s.class != ci {
			bump = 0
		} else {
			for n, steps := s.free, int32(0); n != none; n = c.links[n].next {
				if n < first || n >= first+s.bump || c.pages[n].hashed || steps > c.per {
					return nil, fmt.Errorf("page %d is in the free list of slab %d by mistake", n, i)
				}
				state[n]++
				steps++
			}
		}
		for n := first + bump; n < first+c.per; n++ {
			if c.pages[n].hashed {
				return nil, fmt.Errorf("page %d is hashed and was never used", n)
			}
			state[n]++
		}
	}
	return state, nil
}

// checkSlabs compares the counts of slabs with their pages, and the lists of slabs with their
// counts.
func (p *Pool) checkSlabs() error {
	free, idle := 0, 0
	assigned := make([]int, len(p.classes))
	for i := range p.slabs {
		s := &p.slabs[i]
		if s.class == none {
			free++
			continue
		}
		c := &p.classes[s.class]
		assigned[s.class]++
		var used, cached int32
		for _, pg := range c.pages[int32(i)*c.per:][:c.per] {
			if pg.refs > 0 {
				used++
			} else if pg.hashed {
				cached++
			}
		}
		if used != s.used || cached != s.cached || used+cached == 0 && !s.pinned {
			return fmt.Errorf("kv slab %d has %d owned and %d cached pages and counts %d and %d", i, used, cached, s.used, s.cached)
		}
		if s.idle != (used == 0 && !s.pinned) || s.avail != (used+cached < c.per) {
			return fmt.Errorf("kv slab %d is in the wrong list", i)
		}
		if s.idle {
			idle++
		}
	}
	for i := range p.classes {
		if c := &p.classes[i]; c.slabs != assigned[i] {
			return fmt.Errorf("kv class %s has %d slabs and counts %d", c.spec.Name, assigned[i], c.slabs)
		}
	}
	if free != len(p.freeSlabs) || idle != p.nIdle {
		return fmt.Errorf("kv: %d slabs are free and %d listed, %d idle and %d counted", free, len(p.freeSlabs), idle, p.nIdle)
	}
	return nil
}
