package kv

import (
	"encoding/binary"
	"encoding/hex"
)

// Item is a picture in a sequence. Its Tokens tokens from position At on have encoded rows in place
// of embeddings. Two items share cached blocks only if all of an item but From and To is equal.
type Item struct {
	// Hash identifies the content of the item: the numbers that are encoded, and how they become
	// tokens.
	Hash [32]byte
	// Name is the item's key in the Hashes that other programs compute, vLLM's mm_hash or the
	// client's uuid; "": the hexadecimal Hash.
	Name       string
	At, Tokens int
	// From and To are the positions From to To−1 whose K and V depend on the whole item beside the
	// tokens before them: its own, and where tokens see later ones also those of the items that
	// follow or precede it without a token between.
	From, To int
}

// End returns the position behind the item's last token.
func (m *Item) End() int { return m.At + m.Tokens }

// Key returns the item's key in a Hash.
func (m *Item) Key() string {
	if m.Name != "" {
		return m.Name
	}
	return hex.EncodeToString(m.Hash[:])
}

// SetItems sets the items of t's sequence, in order of their positions. Call it before t has blocks.
func (t *Table) SetItems(items []Item) { t.items = items }

// overlapping returns the items on which size positions from at on depend beside the tokens.
func (t *Table) overlapping(at, size int) []Item {
	from := 0
	for from < len(t.items) && t.items[from].To <= at {
		from++
	}
	to := from
	for to < len(t.items) && t.items[to].From < at+size {
		to++
	}
	return t.items[from:to:to]
}

// within returns the items that have tokens among size positions from at on.
func (t *Table) within(at, size int) []Item {
	from := 0
	for from < len(t.items) && t.items[from].End() <= at {
		from++
	}
	to := from
	for to < len(t.items) && t.items[to].At < at+size {
		to++
	}
	return t.items[from:to:to]
}

// appendItems appends what the key of the block of size tokens at position at covers of its items:
// their hashes, and where they begin from there.
func (t *Table) appendItems(b []byte, at, size int) []byte {
	for _, m := range t.overlapping(at, size) {
		b = append(b, m.Hash[:]...)
		b = binary.LittleEndian.AppendUint64(b, uint64(int64(m.At-at)))
	}
	return b
}
