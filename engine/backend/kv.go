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
	Format    kernels.Format // F32, F16 or BF16
	BlockSize int            // tokens a page holds; a multiple of 16
	Layers    int
	KVHeads   int
	HeadDim   int
	// SlabBytes and PagesPerSlab place page n: slab n/PagesPerSlab of the KV
	// arena, page n%PagesPerSlab in it.
	SlabBytes    int64
	PagesPerSlab int
	// MaxPages is the width of the class's page table: pages a sequence of
	// the model's length needs.
	MaxPages int
	// Plane says the class carries the token plane.
	Plane bool
}

// half is the bytes of K (or V) of one layer in a page.
func (c KVClass) half() int64 {
	return c.Format.Bytes(int64(c.KVHeads) * int64(c.HeadDim) * int64(c.BlockSize))
}

// PageBytes is what one page takes, a multiple of 64.
func (c KVClass) PageBytes() int64 {
	n := 2 * c.half() * int64(c.Layers)
	if c.Plane {
		n += int64(c.BlockSize) * 4
	}
	return (n + 63) / 64 * 64
}

// KOffset is where layer l's K begins in a page.
func (c KVClass) KOffset(l int) int64 { return 2 * c.half() * int64(l) }

// VOffset is where layer l's V begins in a page.
func (c KVClass) VOffset(l int) int64 { return c.KOffset(l) + c.half() }

// TokenOffset is where the token plane begins in a page.
func (c KVClass) TokenOffset() int64 { return 2 * c.half() * int64(c.Layers) }

// Address is the byte offset of a page in the KV arena.
func (c KVClass) Address(page int32) int64 {
	s, i := int(page)/c.PagesPerSlab, int(page)%c.PagesPerSlab
	return int64(s)*c.SlabBytes + int64(i)*c.PageBytes()
}
