package kv

// Pool assigns slabs to classes and pages to sequences. It is not safe for concurrent use.
//
// A page is owned by one or more tables, or cached, or free. A cached page has no owner but can
// be found by the hash of its tokens. Cached pages are evicted, least recently used first, when
// no free page is left. A slab whose pages are all free is returned to the pool. A slab whose
// pages are all free or cached is idle: another class may take it.
type Pool struct {
	layout        Layout
	caching       bool
	classes       []class
	slabs         []slab
	freeSlabs     []int32 // slabs of no class; the last one is taken next
	availLinks    []link  // links of slabs in the avail list of their class
	idleLinks     []link  // links of slabs in idle
	pinned        []int32 // slabs that stay with their class until the next step
	idle          list    // slabs without owned pages, idle for longest first
	nIdle         int
	tables        map[*Table]struct{} // tables that may own pages
	groups        []int               // block sizes; classes of the same one share a hash chain
	freed         uint64
	snapClass     int      // the class of state snapshots, or none
	maxSnapshots  int      // most snapshots kept at once
	snapshotEvery int      // tokens between two snapshots of a sequence
	storing       []*Table // tables with uncommitted snapshots, oldest first
	need          []int    // scratch of Extend: pages to take
	was           []int    // scratch of Extend: blocks before
	buf           []byte   // scratch of hashing
	changes       *changes // nil: changes of the prefix cache are not recorded
}

// class is the state of one class of page.
type class struct {
	spec  Spec
	per   int32 // pages of a slab
	group int   // index into Pool.groups; none for State
	pages []page
	links []link // links of pages: in lru while cached, otherwise in a slab's free list
	byKey map[Key]int32
	lru   list // cached pages, the next to evict first
	avail list // slabs of the class with a free page

	slabs, idle  int // slabs
	used, cached int // pages
}

type page struct {
	refs   int32
	hashed bool
	key    Key
}

type slab struct {
	class        int32 // none: free
	used, cached int32 // pages
	free         int32 // first page of its list of free pages
	bump         int32 // pages from this one on were not used since the slab was assigned
	avail, idle  bool  // is in these lists
	pinned       bool  // the step being prepared reads pages of it that were released
}

// NewPool returns a pool of that many slabs, all free. caching enables prefix caching: full
// blocks can be found after their sequence has ended.
func NewPool(l Layout, slabs int, caching bool) *Pool {
	slabs = max(0, min(slabs, l.MaxSlabs()))
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
			findable = n // full size, so that the map never grows during a step
		}
		p.classes = append(p.classes, class{
			spec: s, per: int32(l.PagesPerSlab[i]), group: p.groupOf(s),
			pages: make([]page, n), links: make([]link, n),
			byKey: make(map[Key]int32, findable), lru: empty, avail: empty,
		})
	}
	return p
}

// Layout returns the pool's layout.
func (p *Pool) Layout() Layout { return p.layout }

// Slabs returns how many slabs the pool has.
func (p *Pool) Slabs() int { return len(p.slabs) }

// Caching reports whether prefix caching is on.
func (p *Pool) Caching() bool { return p.caching }

// Frees returns how often a page lost its last owner. While the number stays the same, an
// allocation that failed would fail again.
func (p *Pool) Frees() uint64 { return p.freed }

// Usage counts the pages of one class.
type Usage struct {
	Pages  int // pages that the class would have with all slabs
	Used   int // pages owned by at least one sequence
	Cached int // pages without an owner that hold a cached block
}

// Usage returns the page counts of a class.
func (p *Pool) Usage(class int) Usage {
	c := &p.classes[class]
	return Usage{Pages: len(c.pages), Used: c.used, Cached: c.cached}
}

// Share returns the share of the arena that sequences own, 0 to 1.
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

// Fits reports whether need[i] more pages of each class i can be allocated now, by evicting
// cached pages if necessary.
func (p *Pool) Fits(need []int) bool {
	have := len(p.freeSlabs) + p.nIdle
	for i := range p.classes {
		c := &p.classes[i]
		// Pages without an owner, in slabs that have owned ones.
		unowned := (c.slabs-c.idle)*int(c.per) - c.used
		if more := need[i] - unowned; more > 0 {
			have -= (more + int(c.per) - 1) / int(c.per)
		}
	}
	return have >= 0
}

// take allocates a page of class ci. In this order it takes a free page, a page of a free slab,
// the least recently used cached page, or a page of another class's slab, the one that has been
// idle for longest.
func (p *Pool) take(ci int) (int32, bool) {
	c := &p.classes[ci]
	if c.avail.head == none && !p.assignSlab(ci) {
		if c.lru.head != none {
			n := c.lru.head
			p.uncache(ci, n)
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

// takeCompact allocates a page like take, but in the order that Fits assumes: pages of slabs
// that are not idle go first, cached ones included. So it takes no slab that another class
// needs. It scans all slabs.
func (p *Pool) takeCompact(ci int) (int32, bool) {
	c := &p.classes[ci]
	for si := range p.slabs {
		if s := &p.slabs[si]; s.class == int32(ci) && !s.idle && s.used+s.cached < c.per {
			return p.takeFree(c, int32(si)), true
		}
	}
	for n := c.lru.head; n != none; n = c.links[n].next {
		if !p.slabs[n/c.per].idle {
			p.uncache(ci, n)
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

// takeFree allocates a free page of slab si.
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

// assignSlab assigns a free slab to class ci. It returns false if there is none.
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

// BeginStep begins the preparation of a new step. Slabs pinned for the previous step may go to
// other classes again.
func (p *Pool) BeginStep() {
	for _, si := range p.pinned {
		p.slabs[si].pinned = false
		p.updateLists(si)
	}
	p.pinned = p.pinned[:0]
}

// pin keeps a slab with its class for this step, which reads a page of it that is about to be
// released. Layers of the same class may store to that page, since a layer reads its history
// before it stores. A layer of another class could run, and store, before the read.
func (p *Pool) pin(si int32) {
	if s := &p.slabs[si]; !s.pinned {
		s.pinned = true
		p.pinned = append(p.pinned, si)
	}
}

// own gives a free page its first owner.
func (p *Pool) own(c *class, n int32) {
	c.pages[n].refs = 1
	c.used++
	s := n / c.per
	p.slabs[s].used++
	p.updateLists(s)
}
