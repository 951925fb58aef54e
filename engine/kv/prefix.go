package kv

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Key identifies the content of a block: its tokens and items, all tokens and items before it and
// the salt of its sequence. It is 128 bits of the SHA-256 of its parent's key, its tokens and its
// items. The parent of the first block is the hash of the salt.
type Key [16]byte

// groupOf returns the index of the hash chain that a class uses.
func (p *Pool) groupOf(s Spec) int {
	if s.Kind == State {
		return none
	}
	if i := slices.Index(p.groups, s.BlockSize); i >= 0 {
		return i
	}
	p.groups = append(p.groups, s.BlockSize)
	return len(p.groups) - 1
}

// key returns the key of block b of a sequence with these tokens. A table computes each key once.
func (p *Pool) key(t *Table, group, b int, tokens []int32) Key {
	size := p.groups[group]
	for have := len(t.chain[group]); have <= b; have++ {
		parent := rootKey(t.salt)
		if have > 0 {
			parent = t.chain[group][have-1]
		}
		p.buf = append(append(p.buf[:0], 'b'), parent[:]...)
		for _, id := range tokens[have*size:][:size] {
			p.buf = binary.LittleEndian.AppendUint32(p.buf, uint32(id))
		}
		p.buf = t.appendItems(p.buf, have*size, size)
		sum := sha256.Sum256(p.buf)
		t.chain[group] = append(t.chain[group], Key(sum[:16]))
	}
	return t.chain[group][b]
}

func rootKey(salt string) Key {
	sum := sha256.Sum256(append([]byte{'r'}, salt...))
	return Key(sum[:16])
}

// find returns the page of class c that holds block b.
func (p *Pool) find(t *Table, c *class, b int, tokens []int32) (int32, bool) {
	n, ok := c.byKey[p.key(t, c.group, b, tokens)]
	return n, ok
}

// Match finds the longest prefix of tokens that every class has cached, gives its pages to t,
// which has none, and returns its length. The prefix consists of whole blocks and is shorter
// than tokens, since the last token must be computed to sample from. With recurrent states, the
// prefix must have a snapshot at its end.
func (p *Pool) Match(t *Table, tokens []int32) int {
	if !p.caching || len(tokens) < 2 {
		return 0
	}
	n := p.longest(t, tokens)
	if n == 0 {
		return 0
	}
	p.tables[t] = struct{}{}
	for i := range t.parts {
		c, part := &p.classes[i], &t.parts[i]
		if c.spec.Kind == State || c.spec.Kind == Snapshot {
			continue
		}
		part.low, part.sealed = c.spec.firstBlock(n), n/c.spec.BlockSize
		part.stale = part.low
		for b := range part.sealed {
			if b < part.low {
				part.pages = append(part.pages, none)
				continue
			}
			page, _ := p.find(t, c, b, tokens)
			p.share(c, page)
			part.pages = append(part.pages, page)
			part.held++
		}
	}
	if p.snapClass != none {
		p.beginFrom(t, tokens, n)
	}
	return n
}

// Cached returns the length of the prefix of tokens that Match would find for a sequence with these items and without
// a salt. It changes nothing, the order of eviction included.
func (p *Pool) Cached(tokens []int32, items ...Item) int {
	if !p.caching || len(tokens) < 2 {
		return 0
	}
	t := p.NewTable("")
	t.SetItems(items)
	return p.longest(t, tokens)
}

// longest returns the length of the longest prefix, shorter than tokens and in whole blocks, of
// which every class holds all blocks that a later position reads.
func (p *Pool) longest(t *Table, tokens []int32) int {
	n, states := len(tokens)-1, false
	for i := range p.classes {
		c := &p.classes[i]
		if c.spec.Kind == Full {
			n = p.prefix(t, c, tokens, n)
		}
		states = states || c.spec.Kind == State
	}
	n = p.windows(t, tokens, n)
	if p.snapClass == none {
		if states {
			return 0
		}
		return n
	}
	t.snaps.branch = n - n%p.classes[p.snapClass].spec.BlockSize
	for was := -1; n != was && n > 0; {
		was = n
		n = p.windows(t, tokens, p.latestSnapshot(t, tokens, n))
	}
	return n
}

// windows returns the largest length up to n, in whole blocks of every class, whose last window
// is cached in each class of a window, or whose last chunk is in each class of a chunk.
func (p *Pool) windows(t *Table, tokens []int32, n int) int {
	for was := -1; n != was && n > 0; {
		was = n
		for i := range p.classes {
			c := &p.classes[i]
			if c.spec.Kind == State {
				continue
			}
			n -= n % c.spec.BlockSize
			if c.spec.bounded() {
				n = p.suffix(t, c, tokens, n)
			}
		}
	}
	return n
}

// prefix returns how many of the first n tokens class c holds without a gap.
func (p *Pool) prefix(t *Table, c *class, tokens []int32, n int) int {
	b := 0
	for ; (b+1)*c.spec.BlockSize <= n; b++ {
		if _, ok := p.find(t, c, b, tokens); !ok {
			break
		}
	}
	return b * c.spec.BlockSize
}

// suffix returns the largest length up to n, in whole blocks, whose last window class c holds
// without a gap.
func (p *Pool) suffix(t *Table, c *class, tokens []int32, n int) int {
	end := n / c.spec.BlockSize
	for b := end - 1; b >= 0 && b >= c.spec.firstBlock(end*c.spec.BlockSize); b-- {
		if _, ok := p.find(t, c, b, tokens); !ok {
			end = b
		}
	}
	return end * c.spec.BlockSize
}

// Seal enters the full blocks among the first done tokens, and the snapshots after them, into
// the prefix cache. They must have been computed. A block that another page already holds is
// not entered.
func (p *Pool) Seal(t *Table, tokens []int32, done int) {
	if !p.caching {
		return
	}
	for i := range t.parts {
		c, part := &p.classes[i], &t.parts[i]
		if c.spec.Kind == State || c.spec.Kind == Snapshot {
			continue
		}
		for ; (part.sealed+1)*c.spec.BlockSize <= done; part.sealed++ {
			key := p.key(t, c.group, part.sealed, tokens)
			n := part.pages[part.sealed]
			if part.sealed < part.low || n == none || c.pages[n].hashed {
				continue
			}
			if _, taken := c.byKey[key]; !taken {
				c.byKey[key] = n
				c.pages[n].hashed, c.pages[n].key = true, key
				p.stored(t, i, part.sealed, n, tokens)
			}
		}
	}
	if p.snapClass != none {
		p.sealSnapshots(t, tokens, done)
	}
}
