package backend

import "vapp.dev/kernels"

// KVClass is the geometry of one class of pages (vLLM: a KV cache group). A page holds
// BlockSize tokens for all Layers of the class: for each layer K then V, then the token
// plane if there is one. Inside a layer, K is [KVHeads][HeadDim][BlockSize] (BlockSize keys
// for every dimension, so that a vector register holds one dimension of many keys) and V
// is [KVHeads][BlockSize][HeadDim]. The token plane is [BlockSize] I32: the ids of the
// tokens whose K and V the page holds.
type KVClass struct {
	Name      string
	Format    kernels.Format // of K and V: F32, F16, BF16 or an 8-bit float
	BlockSize int            // tokens in a page, a multiple of 16; 0 for a State
	Layers    int
	KVHeads   int
	HeadDim   int
	// Window is how many tokens a query sees, itself included; the class keeps only
	// these. 0: all.
	Window int
	// Chunked means that a query sees, and the class keeps, the tokens of the query's chunk of
	// Window tokens instead: those from the last multiple of Window on.
	Chunked bool
	// KeyDim is how many numbers of a head's key are stored, if the others are
	// computed from its value (Attention.Rebuild, Attention.Latent). 0: HeadDim.
	KeyDim int
	// State is the recurrent state that a page holds instead of keys and values; a sequence
	// has one page. nil: a class of attention.
	State *StateShape
	// Snapshot marks a class whose pages are snapshots of the State of class Of (see
	// state_snapshot.go).
	Snapshot bool
	Of       int
	// SlabBytes and PagesPerSlab place page n: slab n/PagesPerSlab of the KV
	// arena, page n%PagesPerSlab in it.
	SlabBytes    int64
	PagesPerSlab int
	// MaxPages is the width of the class's page table: the pages of a sequence of the
	// model's maximum length. With a Window the table has two halves (see StoreEntry).
	MaxPages int
	// Plane means that the class has the token plane.
	Plane bool
}

// StateShape is the recurrent state of one layer: the last inputs of a causal
// convolution, then Copies of a matrix for each head (one copy for each token that a
// step may verify).
type StateShape struct {
	ConvRows, ConvCols int            // inputs kept × channels
	ConvFormat         kernels.Format // of the inputs
	Heads, Rows, Cols  int            // the matrices, F32
	Copies             int            // of the matrices, at least 1
}

// ConvBytes returns the size of the convolution's inputs.
func (s StateShape) ConvBytes() int64 {
	return s.ConvFormat.Bytes(int64(s.ConvRows) * int64(s.ConvCols))
}

// MatrixBytes returns the size of one copy of the matrices.
func (s StateShape) MatrixBytes() int64 {
	return 4 * int64(s.Heads) * int64(s.Rows) * int64(s.Cols)
}

// Bytes returns the size of the state of one layer.
func (s StateShape) Bytes() int64 { return s.ConvBytes() + int64(s.Copies)*s.MatrixBytes() }

// keyDim returns how many numbers of a head's key are stored.
func (c KVClass) keyDim() int {
	if c.KeyDim > 0 {
		return c.KeyDim
	}
	return c.HeadDim
}

// keys returns the bytes of K of one layer in a page, values those of V.
func (c KVClass) keys() int64 {
	return c.Format.Bytes(int64(c.KVHeads) * int64(c.keyDim()) * int64(c.BlockSize))
}

func (c KVClass) values() int64 {
	return c.Format.Bytes(int64(c.KVHeads) * int64(c.HeadDim) * int64(c.BlockSize))
}

// layer returns the bytes of one layer in a page.
func (c KVClass) layer() int64 {
	if c.State != nil {
		return c.State.Bytes()
	}
	return c.keys() + c.values()
}

// PageBytes returns the size of one page, a multiple of 64.
func (c KVClass) PageBytes() int64 {
	n := c.layer() * int64(c.Layers)
	if c.Plane {
		n += int64(c.BlockSize) * 4
	}
	return (n + 63) / 64 * 64
}

// KOffset returns the offset of layer l's K, or of its state, in a page.
func (c KVClass) KOffset(l int) int64 { return c.layer() * int64(l) }

// VOffset returns the offset of layer l's V in a page.
func (c KVClass) VOffset(l int) int64 { return c.KOffset(l) + c.keys() }

// TokenOffset returns the offset of the token plane in a page.
func (c KVClass) TokenOffset() int64 { return c.layer() * int64(c.Layers) }

// Address returns the byte offset of a page in the KV arena.
func (c KVClass) Address(page int32) int64 {
	s, i := int(page)/c.PagesPerSlab, int(page)%c.PagesPerSlab
	return int64(s)*c.SlabBytes + int64(i)*c.PageBytes()
}

// FirstBlock returns the first block that a query at position pos reads.
func (c KVClass) FirstBlock(pos int) int {
	switch {
	case c.Window == 0 || pos < c.Window:
		return 0
	case c.Chunked:
		return pos / c.Window * c.Window / c.BlockSize
	}
	return (pos - c.Window + 1) / c.BlockSize
}

// Entry returns the page-table entry of a block that a step reads; from is the step's first
// position. With a Window, the table begins with the first block that from reads.
func (c KVClass) Entry(block, from int) int { return block - c.FirstBlock(from) }

// StoreEntry returns the page-table entry of a block that a step stores to; to is the position
// after the step's last. It is −1 for a block that has left the window or the chunk by then. With a
// Window, these entries are the table's second half. A step reads a layer's history before
// it stores, so a page may be in both halves for different blocks.
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
