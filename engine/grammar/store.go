package grammar

import (
	"fmt"
	"slices"
	"sync"
)

// store is the cache of compiled grammars. It counts the bytes of all grammars, of the replies'
// states, and of running compilations.
type store struct {
	mu     sync.Mutex
	budget int64 // for used; 0: unlimited
	used   int64
	byKey  map[Spec]*Grammar
	order  []Spec // most recently used last
	source int    // source bytes in byKey
}

// alloc adds n bytes to those in use. If necessary it evicts grammars that no request uses, the
// oldest first. If that does not free enough, it evicts none and returns ErrBusy.
func (c *store) alloc(n int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.budget > 0 && c.used+n-c.idle() > c.budget {
		return ErrBusy
	}
	c.evictIdle(n)
	c.used += n
	return nil
}

// charge adds the n bytes by which a state of g has grown. state is its size now. If the total
// exceeds the budget it returns ErrBusy, or an *Error if g and this state alone exceed it.
func (c *store) charge(g *Grammar, n, state int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evictIdle(n)
	c.used += n
	if c.budget == 0 || c.used <= c.budget {
		return nil
	}
	if err := c.fits(g.spec, g.size+state); err != nil {
		return err
	}
	return ErrBusy
}

// evictIdle evicts grammars that no request uses until n bytes fit or none is left.
func (c *store) evictIdle(n int64) {
	for i := 0; c.budget > 0 && c.used+n > c.budget && i < len(c.order); {
		if c.byKey[c.order[i]].uses > 0 {
			i++
			continue
		}
		c.evict(i)
	}
}

// idle returns the bytes of the grammars that no request uses.
func (c *store) idle() (n int64) {
	for _, g := range c.byKey {
		if g.uses == 0 {
			n += g.size
		}
	}
	return n
}

// dealloc subtracts n bytes from those in use.
func (c *store) dealloc(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used -= n
}

// get returns a grammar of the store and adds a use; nil if it is not in the store.
func (c *store) get(s Spec) *Grammar {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.byKey[s]
	if g != nil {
		g.uses++
		c.touch(s)
	}
	return g
}

// use adds a use of a grammar that is already in use.
func (c *store) use(g *Grammar) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.uses++
}

// release ends one use of a grammar, and frees the grammar if it was the last and the store
// does not keep it.
func (c *store) release(g *Grammar) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.uses--; g.uses == 0 && c.byKey[g.spec] != g {
		c.free(g)
	}
}

// put stores a grammar, whose size is already among the bytes in use.
func (c *store) put(g *Grammar) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.order, g.spec); i >= 0 {
		c.evict(i)
	}
	c.byKey[g.spec] = g
	c.order = append(c.order, g.spec)
	c.source += len(g.spec.Source)
	for len(c.order) > keep || c.source > keepBytes && len(c.order) > 1 {
		c.evict(0)
	}
}

func (c *store) touch(s Spec) {
	i := slices.Index(c.order, s)
	c.order = append(slices.Delete(c.order, i, i+1), s)
}

// evict removes a grammar from the store, and frees it if no request uses it.
func (c *store) evict(i int) {
	g := c.byKey[c.order[i]]
	c.source -= len(g.spec.Source)
	delete(c.byKey, g.spec)
	c.order = slices.Delete(c.order, i, i+1)
	if g.uses == 0 {
		c.free(g)
	}
}

func (c *store) free(g *Grammar) {
	c.used -= g.size
	if g.first != nil {
		g.first.Close()
	}
}

// fits returns an *Error if n bytes of a grammar exceed the whole budget.
func (c *store) fits(s Spec, n int64) error {
	if c.budget == 0 || n <= c.budget {
		return nil
	}
	return &Error{s.Kind, fmt.Sprintf("it needs %.0f MiB of memory, more than the %d MiB of all grammars; make it smaller", float64(n)/(1<<20), c.budget>>20)}
}
