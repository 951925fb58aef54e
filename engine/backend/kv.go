package backend

import "vapp.dev/kernels"

// KVClass is the geometry of one class of page. A page holds BlockSize tokens
// for all Layers of its group: for each layer K then V, then (class 0) the
// token plane. Inside a layer, K is [KVHeads][HeadDim][BlockSize] (a column of
// BlockSize keys for every dimension, so that a vector register holds one dimension
// of many keys) and V is [KVHeads][BlockSize][HeadDim]. The token plane is
// [BlockSize] I32: the ids whose K and V the page holds.
type KVClass struct {
	Name      string
	Format    kernels.Format // of K and V: F32, F16, BF16 or an 8-bit float
	BlockSize int            // tokens a page holds, a multiple of 16; 0 for a State
	Layers    int
	KVHeads   int
	HeadDim   int
	// Window is how many tokens a query sees, itself included: the class keeps no
	// more. 0: all.
	Window int
	// KeyDim is how many numbers of a head's key are stored, where the others can be
	// had from its value (Attention.Rebuild). 0: HeadDim.
	KeyDim int
	// State is what a page holds in place of keys and values: one page a sequence.
	// nil: the class is of attention.
	State *StateShape
	// Checkpoint says that a page holds State as class Of left it after some token, for
	// prefixes that other sequences begin behind.
	Snapshot bool
	Of       int
	// SlabBytes and PagesPerSlab place page n: slab n/PagesPerSlab of the KV
	// arena, page n%PagesPerSlab in it.
	SlabBytes    int64
	PagesPerSlab int
	// MaxPages is the width of the class's page table: the pages that a sequence of
	// the model's length holds; of a window twice as many (see Entry).
	MaxPages int
	// Plane says the class carries the token plane.
	Plane bool
}

// StateShape is the recurrent state of one layer: the last inputs of a causal
// convolution, then a matrix for each head, in Copies (one for each token that a
// step may verify).
type StateShape struct {
	ConvRows, ConvCols int            // inputs kept × channels
	ConvFormat         kernels.Format // of the inputs
	Heads, Rows, Cols  int            // the matrices, F32
	Copies             int            // of the matrices, at least 1
}

// ConvBytes is what the convolution's inputs take, in bytes.
func (s StateShape) ConvBytes() int64 {
	return s.ConvFormat.Bytes(int64(s.ConvRows) * int64(s.ConvCols))
}

// MatrixBytes is what one copy of the matrices takes, in bytes.
func (s StateShape) MatrixBytes() int64 {
	return 4 * int64(s.Heads) * int64(s.Rows) * int64(s.Cols)
}

// Bytes is the state of one layer.
func (s StateShape) Bytes() int64 { return s.ConvBytes() + int64(s.Copies)*s.MatrixBytes() }

// keyDim is how many numbers of a head's key are stored.
func (c KVClass) keyDim() int {
	if c.KeyDim > 0 {
		return c.KeyDim
	}
	return c.HeadDim
}

// keys is the bytes of K of one layer in a page, values those of V.
func (c KVClass) keys() int64 {
	return c.Format.Bytes(int64(c.KVHeads) * int64(c.keyDim()) * int64(c.BlockSize))
}

func (c KVClass) values() int64 {
	return c.Format.Bytes(int64(c.KVHeads) * int64(c.HeadDim) * int64(c.BlockSize))
}

// layer is the bytes of one layer in a page.
func (c KVClass) layer() int64 {
	if c.State != nil {
		return c.State.Bytes()
	}
	return c.keys() + c.values()
}

// PageBytes is what one page takes, a multiple of 64.
func (c KVClass) PageBytes() int64 {
	n := c.layer() * int64(c.Layers)
	if c.Plane {
		n += int64(c.BlockSize) * 4
	}
	return (n + 63) / 64 * 64
}

// KOffset is where layer l's K, or its state, begins in a page.
func (c KVClass) KOffset(l int) int64 { return c.layer() * int64(l) }

// VOffset is where layer l's V begins in a page.
func (c KVClass) VOffset(l int) int64 { return c.KOffset(l) + c.keys() }

// TokenOffset is where the token plane begins in a page.
func (c KVClass) TokenOffset() int64 { return c.layer() * int64(c.Layers) }

// Address is the byte offset of a page in the KV arena.
func (c KVClass) Address(page int32) int64 {
	s, i := int(page)/c.PagesPerSlab, int(page)%c.PagesPerSlab
	return int64(s)*c.SlabBytes + int64(i)*c.PageBytes()
}

// Kept is the first block that a query at position pos reads.
func (c KVClass) FirstBlock(pos int) int {
	if c.Window == 0 || pos < c.Window {
		return 0
	}
	return (pos - c.Window + 1) / c.BlockSize
}

// Entry is where a sequence's page table names the page of a block that the step,
// whose first position is from, reads: of a window the table begins with the block
// that from still sees.
func (c KVClass) Entry(block, from int) int { return block - c.FirstBlock(from) }

// StoreEntry is where it names the page that a block is stored to, to being the
// position after the step's last; −1 for a block that has left the window by then. Of a
// window these entries are the table's second half: a step reads a layer's history
// before it stores, so that a page may be in both halves for different blocks.
func (c KVClass) StoreEntry(block, to int) int {
	if c.Window == 0 {
		return block
	}
	b := block - c.FirstBlock(to)
	if b < 0 {
		return -1
	}
	return c.MaxPages/2 + b
}
