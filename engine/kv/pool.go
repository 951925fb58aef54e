package kv

// Pool lends slabs to classes and pages to sequences. It is not safe for
// concurrent use.
type Pool struct {
	layout  Layout
	slabs   int
	caching bool
}

// NewPool makes a pool of that many slabs, all free. caching says whether
// full blocks stay findable after their sequence has gone.
func NewPool(l Layout, slabs int, caching bool) *Pool {
	return &Pool{layout: l, slabs: slabs, caching: caching}
}

// Layout is what the pool was made with; Slabs how many it has.
func (p *Pool) Layout() Layout { return p.layout }

// Slabs is how many slabs the pool has.
func (p *Pool) Slabs() int { return p.slabs }

// Caching says whether prefixes are reused.
func (p *Pool) Caching() bool { return p.caching }

// Usage counts the pages of one class.
type Usage struct {
	Pages  int // that the class would have with all slabs
	Used   int // owned by at least one sequence
	Cached int // owned by none, still holding a findable prefix
}

// Usage counts the pages of a class.
func (p *Pool) Usage(class int) Usage { return Usage{} }

// Share is how much of the arena sequences own, 0 to 1.
func (p *Pool) Share() float64 { return 0 }

// Check verifies that every page is accounted for exactly once: free, cached,
// or owned by as many tables as it counts, and every slab by its pages.
func (p *Pool) Check() error { return nil }
