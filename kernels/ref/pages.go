package ref

import (
	"encoding/binary"
	"math"

	"vapp.dev/kernels"
)

// Pages is one layer of a paged K/V cache. Page n is the n%PagesPerSlab-th of slab
// n/PagesPerSlab; in it K is [KVHeads][HeadDim][BlockSize] and V is
// [KVHeads][BlockSize][HeadDim], both stored as Format.
type Pages struct {
	Arena        []byte
	Format       kernels.Format // F32, F16, BF16 or an 8-bit float
	BlockSize    int            // tokens a page holds
	KVHeads      int
	HeadDim      int
	Window       int // tokens that the class keeps; 0: all
	PageBytes    int64
	SlabBytes    int64
	PagesPerSlab int
	K, V         int64 // where the layer's K and V begin in a page
}

// kept is the block that a table begins with, of a sequence whose step begins at pos.
func (p Pages) kept(pos int) int {
	if p.Window == 0 || pos < p.Window {
		return 0
	}
	return (pos - p.Window + 1) / p.BlockSize
}

// Page returns the bytes of page n.
func (p Pages) Page(n int32) []byte {
	at := int64(int(n)/p.PagesPerSlab)*p.SlabBytes + int64(int(n)%p.PagesPerSlab)*p.PageBytes
	return p.Arena[at : at+p.PageBytes]
}

// key is where element d of the key of a head in a slot lies in a page.
func (p Pages) key(head, d, slot int) int64 {
	return p.K + p.Format.Bytes(int64((head*p.HeadDim+d)*p.BlockSize+slot))
}

// value is where the value vector of a head in a slot begins in a page.
func (p Pages) value(head, slot int) int64 {
	return p.V + p.Format.Bytes(int64((head*p.BlockSize+slot)*p.HeadDim))
}

// Store writes k and v, [KVHeads·HeadDim] each and stored as Format, into a slot.
func (p Pages) Store(page int32, slot int, k, v []byte) {
	b, e := p.Page(page), p.Format.Bytes(1)
	for h := range p.KVHeads {
		for d := range p.HeadDim {
			copy(b[p.key(h, d, slot):][:e], k[e*int64(h*p.HeadDim+d):])
		}
		n := e * int64(p.HeadDim)
		copy(b[p.value(h, slot):][:n], v[n*int64(h):])
	}
}

// Load reads the keys and values of a head at positions from to n-1 of the
// sequence whose pages are table, the first of them of block skip, as float32
// [n−from, HeadDim] each.
func (p Pages) Load(table []int32, skip, head, from, n int, k, v []float32) {
	e := p.Format.Bytes(1)
	for pos := from; pos < n; pos++ {
		b, slot := p.Page(table[pos/p.BlockSize-skip]), pos%p.BlockSize
		row := k[(pos-from)*p.HeadDim:][:p.HeadDim]
		at, step := p.key(head, 0, slot), e*int64(p.BlockSize)
		for d := range row {
			row[d] = widen(p.Format, b[at+int64(d)*step:])
		}
		Dequantize(p.Format, b[p.value(head, slot):], v[(pos-from)*p.HeadDim:][:p.HeadDim])
	}
}

// widen reads the first element of b.
func widen(f kernels.Format, b []byte) float32 {
	switch f {
	case kernels.F16:
		return halfAt(b)
	case kernels.BF16:
		return BFloatToFloat(binary.LittleEndian.Uint16(b))
	case kernels.F8E4M3, kernels.F8E5M2:
		return float8Values(f)[b[0]]
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b))
}
