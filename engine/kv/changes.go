package kv

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Hash is a block's hash as vLLM computes it with prefix_caching_hash_algo sha256_cbor: the SHA-256
// of the canonical CBOR of (parent's Hash, token ids, extra keys). Unlike a Key it is equal in all
// servers of the same seed, whatever their process.
type Hash [sha256.Size]byte

// Origin holds the extra keys of a sequence's hashes.
type Origin struct {
	Adapter string // name of its LoRA adapter, a key of every block; "": none
	Salt    string // the request's cache_salt, a key of the first block; "": none
}

// Op is how a block changed.
type Op uint8

// The ways.
const (
	Stored  Op = iota // entered the prefix cache
	Removed           // left it
	Cleared           // all blocks of all classes left it; no other field is set
)

// Change is a block that entered or left the prefix cache.
type Change struct {
	Op     Op
	Class  int // index into Layout.Specs
	Hash   Hash
	Parent Hash    // Stored: of the block before it, unless First
	First  bool    // Stored: the block is the first of its sequence
	Tokens []int32 // Stored: its tokens; part of the sequence's, and never changed
	Origin Origin  // Stored
	Items  []Item  // Stored: those with tokens in the block, in order; part of the sequence's
	At     int     // Stored: position of the block's first token
}

// changes records what enters and leaves the prefix cache.
type changes struct {
	root    Hash
	list    []Change
	classes []recorded
	buf     []byte
}

// recorded is the blocks of one class. Pages of different Keys can have one Hash: the Keys of an
// adapter's blocks differ between its loads, the Hashes do not.
type recorded struct {
	hashes []Hash         // of each page that is in the prefix cache
	copies map[Hash]int32 // how many pages have a Hash
}

// Record begins to record the changes of the prefix cache, beginning with Cleared. seed is that of
// the hashes: vLLM's PYTHONHASHSEED. Call it before the first Table. Without Record a Pool hashes
// nothing for it and keeps nothing.
func (p *Pool) Record(seed string) {
	r := &changes{root: NoneHash(seed), list: []Change{{Op: Cleared}}, classes: make([]recorded, len(p.classes))}
	for i := range r.classes {
		if p.classes[i].spec.Kind != State {
			r.classes[i] = recorded{make([]Hash, len(p.classes[i].pages)), map[Hash]int32{}}
		}
	}
	p.changes = r
}

// Changes returns the changes since the last call, in their order. They are valid until the Pool
// changes. It returns nothing without Record.
func (p *Pool) Changes() []Change {
	if p.changes == nil || len(p.changes.list) == 0 {
		return nil
	}
	out := p.changes.list
	p.changes.list = out[:0]
	return out
}

// NoneHash returns the parent of a sequence's first block, vLLM's NONE_HASH for a PYTHONHASHSEED.
func NoneHash(seed string) Hash { return sha256.Sum256(appendText(nil, seed)) }

// SetOrigin sets the extra keys of t's hashes. Call it before t has blocks.
func (t *Table) SetOrigin(o Origin) { t.origin = o }

// hash returns the Hash of block b of a sequence, and that of the block before it. A table computes
// each one once.
func (r *changes) hash(t *Table, group, size, b int, tokens []int32) (of, parent Hash) {
	r.reserve(t, group, b+1)
	for have := len(t.hashes[group]); have <= b; have++ {
		parent := r.root
		if have > 0 {
			parent = t.hashes[group][have-1]
		}
		r.buf = appendBlock(r.buf[:0], parent, tokens[have*size:][:size], t.origin, have == 0, t.within(have*size, size), have*size)
		t.hashes[group] = append(t.hashes[group], sha256.Sum256(r.buf))
	}
	if b > 0 {
		parent = t.hashes[group][b-1]
	}
	return t.hashes[group][b], parent
}

// reserve grows t's slice of a group for n hashes.
func (r *changes) reserve(t *Table, group, n int) {
	if t.hashes == nil {
		t.hashes = make([][]Hash, len(t.chain))
	}
	t.hashes[group] = slices.Grow(t.hashes[group], max(0, n-len(t.hashes[group])))
}

// stored records that page n of class ci entered the prefix cache as block b of t.
func (p *Pool) stored(t *Table, ci, b int, n int32, tokens []int32) {
	r := p.changes
	if r == nil {
		return
	}
	c := &p.classes[ci]
	size := c.spec.BlockSize
	h, parent := r.hash(t, c.group, size, b, tokens)
	r.classes[ci].hashes[n] = h
	r.classes[ci].copies[h]++
	if r.classes[ci].copies[h] > 1 {
		return
	}
	r.list = append(r.list, Change{
		Op: Stored, Class: ci, Hash: h, Parent: parent, First: b == 0,
		Tokens: tokens[b*size : (b+1)*size : (b+1)*size], Origin: t.origin, Items: t.within(b*size, size), At: b * size,
	})
}

// removed records that page n of class ci left the prefix cache.
func (p *Pool) removed(ci int, n int32) {
	r := p.changes
	if r == nil {
		return
	}
	k := &r.classes[ci]
	h := k.hashes[n]
	if k.copies[h]--; k.copies[h] > 0 {
		return
	}
	delete(k.copies, h)
	r.list = append(r.list, Change{Op: Removed, Class: ci, Hash: h})
}

// cleared replaces the changes from number from on by one Cleared, if the prefix cache is empty.
func (r *changes) cleared(from int) {
	if r == nil || from == len(r.list) {
		return
	}
	for i := range r.classes {
		if len(r.classes[i].copies) > 0 {
			return
		}
	}
	r.list = append(r.list[:from], Change{Op: Cleared})
}

// recordedChanges returns how many changes are recorded.
func (p *Pool) recordedChanges() int {
	if p.changes == nil {
		return 0
	}
	return len(p.changes.list)
}

// Contents calls f with each Hash in the prefix cache of a class that Record recorded.
func (p *Pool) Contents(f func(class int, h Hash)) {
	if p.changes == nil {
		return
	}
	for i := range p.changes.classes {
		for h := range p.changes.classes[i].copies {
			f(i, h)
		}
	}
}

// appendBlock appends the canonical CBOR (RFC 8949, 4.2.1) of what a block's Hash covers: an array
// of the parent's Hash, the array of token ids, and null or the array of extra keys. Those are, in
// vLLM's order, the adapter, a pair for each item of the block (its name, and where it begins
// from the block's first token at position at on), and the salt.
func appendBlock(b []byte, parent Hash, tokens []int32, o Origin, first bool, items []Item, at int) []byte {
	b = appendHead(b, cborArray, 3)
	b = append(appendHead(b, cborBytes, uint64(len(parent))), parent[:]...)
	b = appendHead(b, cborArray, uint64(len(tokens)))
	for _, id := range tokens {
		b = appendHead(b, cborUnsigned, uint64(uint32(id)))
	}
	keys := len(items)
	if o.Adapter != "" {
		keys++
	}
	salted := first && o.Salt != ""
	if salted {
		keys++
	}
	if keys == 0 {
		return append(b, cborNull)
	}
	b = appendHead(b, cborArray, uint64(keys))
	if o.Adapter != "" {
		b = appendText(b, o.Adapter)
	}
	for i := range items {
		b = appendText(appendHead(b, cborArray, 2), items[i].Key())
		b = appendInt(b, items[i].At-at)
	}
	if salted {
		b = appendText(b, o.Salt)
	}
	return b
}

func appendInt(b []byte, n int) []byte {
	if n < 0 {
		return appendHead(b, cborNegative, uint64(-1-n))
	}
	return appendHead(b, cborUnsigned, uint64(n))
}

func appendText(b []byte, s string) []byte {
	return append(appendHead(b, cborText, uint64(len(s))), s...)
}

// The major types of CBOR that hashes use, and its null.
const (
	cborUnsigned = 0 << 5
	cborNegative = 1 << 5
	cborBytes    = 2 << 5
	cborText     = 3 << 5
	cborArray    = 4 << 5
	cborNull     = 0xf6
)

// appendHead appends a head of CBOR: its argument takes the fewest bytes.
func appendHead(b []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n < 1<<8:
		return append(b, major|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, major|27), n)
}
