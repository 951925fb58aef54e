package kv

import (
	"fmt"
	"slices"
)

// EncoderCache places the encoded rows of items in the arena of encoded rows, and finds those of an
// item by its hash. An item's rows are consecutive. Items that nothing needs stay until their
// rows are needed, least recently used first. It is not safe for concurrent use.
//
// Encodings run in order with steps: rows that a step in flight reads may be given to another
// item at once.
type EncoderCache struct {
	rows   int
	list   []*Encoded // in order of their rows
	byHash map[[32]byte]*Encoded
	held   int    // rows of the items in list
	clock  uint64 // counts uses
	step   uint64
}

// Encoded is an item in the cache: Rows encoded rows from row At on.
type Encoded struct {
	Hash     [32]byte
	At, Rows int
	pins     int
	used     uint64 // when it was last used, by EncoderCache.clock
	step     uint64 // the last step that uses it
}

// NewEncoderCache returns an empty cache of that many rows.
func NewEncoderCache(rows int) *EncoderCache {
	return &EncoderCache{rows: rows, byHash: map[[32]byte]*Encoded{}}
}

// Rows returns how many rows the cache has.
func (c *EncoderCache) Rows() int { return c.rows }

// Held returns how many rows hold an item.
func (c *EncoderCache) Held() int { return c.held }

// BeginStep begins the preparation of a new step. What is used for it from now on stays in the
// cache until the next one.
func (c *EncoderCache) BeginStep() { c.step++ }

// Peek returns the item with a hash, nil if the cache lacks it.
func (c *EncoderCache) Peek(hash [32]byte) *Encoded { return c.byHash[hash] }

// Use returns the item with a hash for the step that is prepared, nil if the cache lacks it.
func (c *EncoderCache) Use(hash [32]byte) *Encoded {
	e := c.byHash[hash]
	if e != nil {
		c.clock++
		e.used, e.step = c.clock, c.step
	}
	return e
}

// Place gives rows to an item that the cache lacks, for the step that is prepared. It takes the rows
// of items that are neither pinned nor used by the step: of all places the one whose most recently
// used item was used longest ago. It returns nil, and changes nothing, if there is no place.
func (c *EncoderCache) Place(hash [32]byte, rows int) *Encoded {
	best, last, at, least := -1, 0, 0, uint64(0)
	start := 0
	for i := 0; i <= len(c.list); i++ { // the place begins behind item i−1, and takes items i to k−1
		if i > 0 {
			start = c.list[i-1].At + c.list[i-1].Rows
		}
		if start+rows > c.rows {
			break
		}
		k, newest, free := i, uint64(0), true
		for ; free && k < len(c.list) && c.list[k].At < start+rows; k++ {
			free, newest = !c.needed(c.list[k]), max(newest, c.list[k].used)
		}
		if free && (best < 0 || newest < least) {
			best, last, at, least = i, k, start, newest
		}
	}
	if best < 0 {
		return nil
	}
	c.held += rows
	for _, old := range c.list[best:last] {
		c.held -= old.Rows
		delete(c.byHash, old.Hash)
	}
	c.clock++
	e := &Encoded{Hash: hash, At: at, Rows: rows, used: c.clock, step: c.step}
	c.list = slices.Replace(c.list, best, last, e)
	c.byHash[hash] = e
	return e
}

func (c *EncoderCache) needed(e *Encoded) bool { return e.pins > 0 || e.step == c.step }

// Pin keeps an item in the cache until Unpin.
func (c *EncoderCache) Pin(e *Encoded) { e.pins++ }

// Unpin undoes a Pin.
func (c *EncoderCache) Unpin(e *Encoded) { e.pins-- }

// Remove takes an item without pins from the cache.
func (c *EncoderCache) Remove(e *Encoded) {
	if c.byHash[e.Hash] != e {
		return
	}
	delete(c.byHash, e.Hash)
	i := slices.Index(c.list, e)
	c.list = slices.Delete(c.list, i, i+1)
	c.held -= e.Rows
}

// EncoderUsage counts the rows of an EncoderCache.
type EncoderUsage struct {
	Rows   int // that the cache has
	Cached int // that hold an item
	Pinned int // of Cached, those that sequences need
	Items  int
}

// Usage returns the counts.
func (c *EncoderCache) Usage() EncoderUsage {
	u := EncoderUsage{Rows: c.rows, Items: len(c.list)}
	for _, e := range c.list {
		if u.Cached += e.Rows; e.pins > 0 {
			u.Pinned += e.Rows
		}
	}
	return u
}

// Check verifies that no two items share a row, that each is found by its hash, and that the pins
// are those of pinned, which counts them by item.
func (c *EncoderCache) Check(pinned map[*Encoded]int) error {
	end, pins, held := 0, 0, 0
	for _, e := range c.list {
		if e.At < end || e.Rows < 1 || e.At+e.Rows > c.rows {
			return fmt.Errorf("encoder cache: rows %d to %d of %d overlap others, which end at %d", e.At, e.At+e.Rows-1, c.rows, end)
		}
		if c.byHash[e.Hash] != e {
			return fmt.Errorf("encoder cache: the item at row %d cannot be found", e.At)
		}
		if e.pins != pinned[e] {
			return fmt.Errorf("encoder cache: the item at row %d counts %d pins and has %d", e.At, e.pins, pinned[e])
		}
		held += e.Rows
		if end = e.At + e.Rows; pinned[e] > 0 {
			pins++
		}
	}
	if held != c.held {
		return fmt.Errorf("encoder cache: %d rows hold items and %d are counted", held, c.held)
	}
	if len(c.list) != len(c.byHash) || pins != len(pinned) {
		return fmt.Errorf("encoder cache: %d items, %d findable; %d pinned, of %d that sequences pin", len(c.list), len(c.byHash), pins, len(pinned))
	}
	return nil
}
