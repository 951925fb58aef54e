package kv

// share adds an owner to an owned or cached page.
func (p *Pool) share(c *class, n int32) {
	pg := &c.pages[n]
	pg.refs++
	if pg.refs > 1 {
		return
	}
	c.lru.remove(c.links, n)
	c.cached--
	c.used++
	s := n / c.per
	p.slabs[s].cached--
	p.slabs[s].used++
	p.updateLists(s)
}

// release removes one owner of a page. Without owners the page is cached or free.
func (p *Pool) release(c *class, n int32) {
	pg := &c.pages[n]
	pg.refs--
	if pg.refs > 0 {
		return
	}
	p.freed++
	c.used--
	si := n / c.per
	s := &p.slabs[si]
	s.used--
	if pg.hashed {
		c.lru.push(c.links, n)
		c.cached++
		s.cached++
	} else {
		c.links[n].next = s.free
		s.free = n
	}
	p.updateLists(si)
}

// uncache removes a cached page from the prefix cache. The page is in no list afterwards; the
// caller allocates or frees it.
func (p *Pool) uncache(ci int, n int32) {
	c := &p.classes[ci]
	pg := &c.pages[n]
	delete(c.byKey, pg.key)
	pg.hashed = false
	c.lru.remove(c.links, n)
	c.cached--
	p.slabs[n/c.per].cached--
	p.removed(ci, n)
}

// updateLists moves slab si to the lists that match its counts.
func (p *Pool) updateLists(si int32) {
	s := &p.slabs[si]
	c := &p.classes[s.class]
	if avail := s.used+s.cached < c.per; avail != s.avail {
		s.avail = avail
		if avail {
			c.avail.push(p.availLinks, si)
		} else {
			c.avail.remove(p.availLinks, si)
		}
	}
	if idle := s.used == 0 && !s.pinned; idle != s.idle {
		s.idle = idle
		if idle {
			p.idle.push(p.idleLinks, si)
			c.idle++
			p.nIdle++
		} else {
			p.idle.remove(p.idleLinks, si)
			c.idle--
			p.nIdle--
		}
	}
	if s.used == 0 && s.cached == 0 && !s.pinned {
		p.releaseSlab(si)
	}
}

// releaseSlab takes a slab whose pages are all free from its class.
func (p *Pool) releaseSlab(si int32) {
	s := &p.slabs[si]
	c := &p.classes[s.class]
	c.avail.remove(p.availLinks, si)
	if s.idle {
		p.idle.remove(p.idleLinks, si)
		c.idle--
		p.nIdle--
	}
	c.slabs--
	*s = slab{class: none}
	p.freeSlabs = append(p.freeSlabs, si)
}

// evictSlab evicts the cached pages of an idle slab and releases the slab.
func (p *Pool) evictSlab(si int32) {
	ci := int(p.slabs[si].class)
	c := &p.classes[ci]
	for n := si * c.per; n < (si+1)*c.per; n++ {
		if c.pages[n].hashed {
			p.uncache(ci, n)
		}
	}
	if !p.slabs[si].avail {
		p.slabs[si].avail = true
		c.avail.push(p.availLinks, si)
	}
	p.releaseSlab(si)
}

// EvictAll evicts every cached page. Owned pages can still be found. Afterwards all idle slabs
// are free.
func (p *Pool) EvictAll() {
	from := p.recordedChanges()
	for i := range p.classes {
		c := &p.classes[i]
		for c.lru.head != none {
			n := c.lru.head
			p.uncache(i, n)
			si := n / c.per
			c.links[n].next = p.slabs[si].free
			p.slabs[si].free = n
			p.updateLists(si)
		}
	}
	p.changes.cleared(from)
}
