package kv

// Pool lends slabs to classes and pages to sequences. It is not safe for
// concurrent use.
//
// A page is owned by one or more tables; or cached: owned by none, but findable by
// the hash of what it holds; or free. Cached pages are evicted, least recently
// used first, when nothing else is left. A slab whose pages are all free goes
// back; one whose pages are all free or cached is idle and is taken back when
// another class needs it.
type Pool struct {
	layout        Layout
	caching       bool
	classes       []class
	slabs         []slab
	freeSlabs     []int32 // slabs that no class has, the next one last
	availLinks    []link  // of slabs, in the avail list of their class
	idleLinks     []link  // of slabs, in idle
	pinned        []int32 // slabs that stay with their class until the next step
	idle          list    // slabs without owned pages, in order of becoming so
	nIdle         int
	tables        map[*Table]struct{} // those that may own pages
	groups        []int               // block sizes; the classes of one share a hash chain
	freed         uint64
	snapClass     int      // the class of state snapshots, or none
	maxSnapshots  int      // snapshots at most
	snapshotEvery int      // tokens from one to the next within a sequence
	storing       []*Table // those with checkpoints that are not committed, the oldest first
	need          []int    // scratch of Extend: pages to take
	was           []int    // scratch of Extend: blocks before
	buf           []byte   // scratch of hashing
}

// class is the state of one class of page.
type class struct {
	spec  Spec
	per   int32 // pages a slab
	group int   // index into Pool.groups; none for State
	pages []page
	links []link // of pages: LRU while cached, next only in a slab's free list
	byKey map[Key]int32
	lru   list // cached pages, the next to evict first
	avail list // lent slabs with a free page

	slabs, idle  int // slabs
	used, cached int // pages
}

type page struct {
	refs   int32
	hashed bool
	key    Key
}

type slab struct {
	class        int32 // none: unlent
	used, cached int32 // pages
	free         int32 // first page of its list of free pages
	bump         int32 // pages from here on were not touched since the slab was lent
	avail, idle  bool  // is in these lists
	pinned       bool  // the step being prepared reads pages that were released
}

// NewPool makes a pool of that many slabs, all free. caching says whether
// full blocks stay findable after their sequence has gone.
func NewPool(l Layout, slabs int, caching bool) *Pool {
	slabs = max(0, min(slabs, l.maxSlabs()))
	p := &Pool{
		layout: l, caching: caching, idle: empty,
		slabs: make([]slab, slabs), availLinks: make([]link, slabs), idleLinks: make([]link, slabs),
		tables: map[*Table]struct{}{}, need: make([]int, len(l.Specs)), was: make([]int, len(l.Specs)),
		snapClass: l.snapshotClass(), maxSnapshots: l.Snapshots(slabs), snapshotEvery: max(1, l.SnapshotEvery()),
	}
	for i := range slabs {
		p.slabs[i].class = none
		p.freeSlabs = append(p.freeSlabs, int32(slabs-1-i))
	}
	for i, s := range l.Specs {
		n, findable := l.Pages(i, slabs), 0
		if caching {
			findable = n // so that no step has the index grow
		}
		p.classes = append(p.classes, class{
			spec: s, per: int32(l.PagesPerSlab[i]), group: p.groupOf(s),
			pages: make([]page, n), links: make([]link, n),
			byKey: make(map[Key]int32, findable), lru: empty, avail: empty,
		})
	}
	return p
}

// Layout is what the pool was made with.
func (p *Pool) Layout() Layout { return p.layout }

// Slabs is how many slabs the pool has.
func (p *Pool) Slabs() int { return len(p.slabs) }

// Caching says whether prefixes are reused.
func (p *Pool) Caching() bool { return p.caching }

// Freed counts how often a page lost its last owner: while it stays the same,
// what did not fit does not fit now.
func (p *Pool) Frees() uint64 { return p.freed }

// Usage counts the pages of one class.
type Usage struct {
	Pages  int // that the class would have with all slabs
	Used   int // owned by at least one sequence
	Cached int // owned by none, still holding a findable prefix
}

// Usage counts the pages of a class.
func (p *Pool) Usage(class int) Usage {
	c := &p.classes[class]
	return Usage{Pages: len(c.pages), Used: c.used, Cached: c.cached}
}

// Share is how much of the arena sequences own, 0 to 1.
func (p *Pool) Share() float64 {
	if len(p.slabs) == 0 {
		return 0
	}
	var slabs float64
	for i := range p.classes {
		slabs += float64(p.classes[i].used) / float64(p.classes[i].per)
	}
	return slabs / float64(len(p.slabs))
}

// Fits says whether need more pages of each class could be had now, at the
// cost of what is cached.
func (p *Pool) Fits(need []int) bool {
	have := len(p.freeSlabs) + p.nIdle
	for i := range p.classes {
		c := &p.classes[i]
		// Pages beside the owned ones, in slabs that have owned ones.
		beside := (c.slabs-c.idle)*int(c.per) - c.used
		if more := need[i] - beside; more > 0 {
			have -= (more + int(c.per) - 1) / int(c.per)
		}
	}
	return have >= 0
}

// take gives an owned page of class ci: a free one, else one of a slab that no
// class has, else the cached one that was not used for longest, else one of
// another class's slab that was idle for longest.
func (p *Pool) take(ci int) (int32, bool) {
	c := &p.classes[ci]
	if c.avail.head == none && !p.assignSlab(ci) {
		if c.lru.head != none {
			n := c.lru.head
			p.uncache(c, n)
			p.own(c, n)
			return n, true
		}
		if p.idle.head == none {
			return none, false
		}
		p.evictSlab(p.idle.head)
		p.assignSlab(ci)
	}
	return p.takeFree(c, c.avail.head), true
}

// takeClose is take in the order that Fits counts on: pages of slabs that are not idle
// go first, cached ones among them, so that no slab is taken that another class needs. It
// looks at all slabs.
func (p *Pool) takeCompact(ci int) (int32, bool) {
	c := &p.classes[ci]
	for si := range p.slabs {
		if s := &p.slabs[si]; s.class == int32(ci) && !s.idle && s.used+s.cached < c.per {
			return p.takeFree(c, int32(si)), true
		}
	}
	for n := c.lru.head; n != none; n = c.links[n].next {
		if !p.slabs[n/c.per].idle {
			p.uncache(c, n)
			p.own(c, n)
			return n, true
		}
	}
	if len(p.freeSlabs) == 0 {
		if p.idle.head == none {
			return none, false
		}
		p.evictSlab(p.idle.head)
	}
	si := p.freeSlabs[len(p.freeSlabs)-1]
	p.assignSlab(ci)
	return p.takeFree(c, si), true
}

// fresh owns a free page of a slab.
func (p *Pool) takeFree(c *class, si int32) int32 {
	s := &p.slabs[si]
	n := s.free
	if n != none {
		s.free = c.links[n].next
	} else {
		n = si*c.per + s.bump
		s.bump++
	}
	p.own(c, n)
	return n
}

// lend gives class ci a slab that no class has.
func (p *Pool) assignSlab(ci int) bool {
	last := len(p.freeSlabs) - 1
	if last < 0 {
		return false
	}
	si := p.freeSlabs[last]
	p.freeSlabs = p.freeSlabs[:last]
	p.slabs[si] = slab{class: int32(ci), free: none, avail: true}
	p.classes[ci].slabs++
	p.classes[ci].avail.push(p.availLinks, si)
	return true
}

// Begin says that a new step is being prepared: what the one before read of released
// pages may be lent to other classes now.
func (p *Pool) BeginStep() {
	for _, si := range p.pinned {
		p.slabs[si].pinned = false
		p.updateLists(si)
	}
	p.pinned = p.pinned[:0]
}

// reads keeps a slab with its class for this step, which reads a page of it that is
// about to be released. Its own class may store there, since a layer reads its history
// before it stores; a layer of another class could come before.
func (p *Pool) pin(si int32) {
	if s := &p.slabs[si]; !s.pinned {
		s.pinned = true
		p.pinned = append(p.pinned, si)
	}
}

// own makes a free page owned once.
func (p *Pool) own(c *class, n int32) {
	c.pages[n].refs = 1
	c.used++
	s := n / c.per
	p.slabs[s].used++
	p.updateLists(s)
}
