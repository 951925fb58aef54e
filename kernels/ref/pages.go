package ref

import (
	"encoding/binary"
	"math"

	"vapp.dev/kernels"
)

// Pages is one layer of a paged K/V cache. Page n is number n%PagesPerSlab in slab
// n/PagesPerSlab. In a page, K is [KVHeads][HeadDim][BlockSize] and V is
// [KVHeads][BlockSize][HeadDim], both stored as Format.
type Pages struct {
	Arena        []byte
	Format       kernels.Format // F32, F16, BF16 or an 8-bit float
	BlockSize    int            // tokens in a page
	KVHeads      int
	HeadDim      int
	KeyDim       int  // numbers of a head's key that are stored: the rotated ones; 0: all
	Window       int  // how many tokens the class keeps; 0: all
	Chunked      bool // it keeps those of a chunk of Window tokens
	Latent       bool // a key is its value followed by the KeyDim stored numbers
	PageBytes    int64
	SlabBytes    int64
	PagesPerSlab int
	K, V         int64 // offsets of the layer's K and V in a page
}

// stored returns how many numbers of a head's key are stored.
func (p Pages) stored() int {
	if p.KeyDim > 0 {
		return p.KeyDim
	}
	return p.HeadDim
}

// keyWidth returns how many dimensions a key has.
func (p Pages) keyWidth() int {
	if p.Latent {
		return p.HeadDim + p.KeyDim
	}
	return p.HeadDim
}

// givenKey returns how many numbers of a key Attention and Store have of a token of the step.
func (p Pages) givenKey() int {
	if p.Latent {
		return p.KeyDim
	}
	return p.HeadDim
}

// turning returns the dimension of the i-th stored number of a key: the stored ones are the
// first of each half of the head, or those behind the value.
func (p Pages) turning(i int) int {
	if p.Latent {
		return p.HeadDim + i
	}
	if half := p.stored() / 2; i >= half {
		return p.HeadDim/2 + i - half
	}
	return i
}

// rebuild computes the numbers of a key that are not stored: value times w.
func (p Pages) rebuild(k, v, w []float32) {
	half := p.stored() / 2
	for d := range k {
		if d%(p.HeadDim/2) >= half {
			k[d] = v[d] * w[d]
		}
	}
}

// first returns the first position that a query at pos reads, in a class that keeps Window tokens.
func (p Pages) first(pos int) int {
	switch {
	case p.Window == 0 || pos < p.Window:
		return 0
	case p.Chunked:
		return pos / p.Window * p.Window
	}
	return pos - p.Window + 1
}

// key sets k to the key of a token of the step; given has its numbers in p.Format. w has the
// factors for the numbers that are not stored.
func (p Pages) key(given []byte, value, w, k []float32) {
	if p.Latent {
		Dequantize(p.Format, given, k[copy(k, value):])
		return
	}
	Dequantize(p.Format, given, k)
	if w != nil {
		p.rebuild(k, value, w)
	}
}

// firstBlock returns the first block in the page table of a sequence whose step begins at
// pos.
func (p Pages) firstBlock(pos int) int {
	return p.first(pos) / p.BlockSize
}

// Page returns the bytes of page n.
func (p Pages) Page(n int32) []byte {
	at := int64(int(n)/p.PagesPerSlab)*p.SlabBytes + int64(int(n)%p.PagesPerSlab)*p.PageBytes
	return p.Arena[at : at+p.PageBytes]
}

// keyAt returns the offset in a page of the d-th stored number of a head's key in a slot.
func (p Pages) keyAt(head, d, slot int) int64 {
	return p.K + p.Format.Bytes(int64((head*p.stored()+d)*p.BlockSize+slot))
}

// value returns the offset in a page of a head's value vector in a slot.
func (p Pages) value(head, slot int) int64 {
	return p.V + p.Format.Bytes(int64((head*p.BlockSize+slot)*p.HeadDim))
}

// Store writes k and v, [KVHeads·HeadDim] each and stored as Format, to a slot. With Latent k is
// [KVHeads·KeyDim].
func (p Pages) Store(page int32, slot int, k, v []byte) {
	b, e := p.Page(page), p.Format.Bytes(1)
	for h := range p.KVHeads {
		for d := range p.stored() {
			from := h*p.HeadDim + p.turning(d)
			if p.Latent {
				from = h*p.KeyDim + d
			}
			copy(b[p.keyAt(h, d, slot):][:e], k[e*int64(from):])
		}
		n := e * int64(p.HeadDim)
		copy(b[p.value(h, slot):][:n], v[n*int64(h):])
	}
}

// Load reads the keys and values of a head at positions from to n−1, as float32 [n−from,
// HeadDim] each; with Latent k is [n−from, HeadDim+KeyDim]. table has the pages of the sequence, starting with block skip. w has the
// factors for the numbers of keys that are not stored.
func (p Pages) Load(table []int32, skip, head, from, n int, w, k, v []float32) {
	e := p.Format.Bytes(1)
	for pos := from; pos < n; pos++ {
		b, slot := p.Page(table[pos/p.BlockSize-skip]), pos%p.BlockSize
		row := k[(pos-from)*p.keyWidth():][:p.keyWidth()]
		at, step := p.keyAt(head, 0, slot), e*int64(p.BlockSize)
		for d := range p.stored() {
			row[p.turning(d)] = widen(p.Format, b[at+int64(d)*step:])
		}
		value := v[(pos-from)*p.HeadDim:][:p.HeadDim]
		Dequantize(p.Format, b[p.value(head, slot):], value)
		if p.Latent {
			copy(row, value)
		}
		if w != nil {
			p.rebuild(row, value, w)
		}
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
