package cuda_test

import (
	"fmt"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

// cache is a paged cache of a few sequences, for ref and for the kernels.
type cache struct {
	ref    ref.Pages
	arena  []byte
	tables []int32
	seqs   int
	width  int
}

// newCache has enough pages for seqs sequences of up to length tokens, in random order, with
// two pages in a slab and unused bytes after each.
func newCache(r *rig, f kernels.Format, block, heads, dim, window, seqs, length int) *cache {
	width := ceil(length, block) + 1
	if window > 0 {
		width *= 2
	}
	layer := f.Bytes(int64(2 * heads * dim * block))
	p := ref.Pages{
		Format: f, BlockSize: block, KVHeads: heads, HeadDim: dim, Window: window,
		PageBytes: 64 + 2*layer + 64, SlabBytes: 2*(128+2*layer) + 64, PagesPerSlab: 2, K: 64 + layer, V: 64 + layer + layer/2,
	}
	p.PageBytes = ceil64(p.PageBytes)
	p.SlabBytes = 2*p.PageBytes + 64
	pages := seqs * width
	c := &cache{ref: p, seqs: seqs, width: width, arena: make([]byte, int64(ceil(pages, 2))*p.SlabBytes)}
	c.ref.Arena = c.arena
	for _, n := range r.rnd.Perm(pages) {
		c.tables = append(c.tables, int32(n))
	}
	return c
}

func ceil64(n int64) int64 { return (n + 63) / 64 * 64 }

// args returns the kernels' form, with the arena's current content.
func (c *cache) args(r *rig) cuda.Pages {
	p := c.ref
	key := p.KeyDim
	if key == 0 {
		key = p.HeadDim
	}
	return cuda.Pages{
		Arena: up(r, c.arena), Tables: up(r, c.tables), PageBytes: p.PageBytes, SlabBytes: p.SlabBytes, K: p.K, V: p.V,
		Width: int32(c.width), Block: int32(p.BlockSize), KVHeads: int32(p.KVHeads), HeadDim: int32(p.HeadDim),
		KeyDim: int32(key), Window: int32(p.Window), Chunked: yes(p.Chunked), PerSlab: int32(p.PagesPerSlab),
	}
}

// entry is store_entry of pages.cuh, as engine/backend defines it.
func (c *cache) entry(block, to int) int {
	w := c.ref.Window
	if w == 0 {
		return block
	}
	first := 0
	switch {
	case c.ref.Chunked:
		first = to / w * w / c.ref.BlockSize
	case to >= w:
		first = (to - w + 1) / c.ref.BlockSize
	}
	if block < first {
		return -1
	}
	return c.width/2 + block - first
}

func TestStoreKV(t *testing.T) {
	r := newRig(t)
	for _, f := range []kernels.Format{kernels.BF16, kernels.F16, kernels.F8E4M3, kernels.F32} {
		testStoreKV(r, f, 0, false)
		testStoreKV(r, f, 20, false)
		testStoreKV(r, f, 20, true)
	}
}

// testStoreKV stores chunks of three sequences, the second of which has no rows, and two rows
// of no sequence.
func testStoreKV(r *rig, f kernels.Format, window int, chunked bool) {
	const block, heads, dim = 16, 2, 24
	c := newCache(r, f, block, heads, dim, window, 3, 64)
	c.ref.Chunked = chunked
	if window == 0 {
		c.ref.KeyDim = 8 // the others can be computed from the value
	}
	first, start := []int32{0, 21, 21, 22}, []int{13, 0, 40}
	var positions, seq []int32
	for s := range 3 {
		for i := range first[s+1] - first[s] {
			positions, seq = append(positions, int32(start[s])+i), append(seq, int32(s))
		}
	}
	positions, seq = append(positions, 0, 3), append(seq, -1, -1)
	rows := len(seq)
	k, _ := stored(f, r.floats(rows*heads*dim, 1))
	v, _ := stored(f, r.floats(rows*heads*dim, 1))
	ids := make([]int32, rows)
	for i := range ids {
		ids[i] = int32(1000 + i)
	}
	const plane = 0 // before the layer
	a := cuda.StoreArgs{
		Pages: c.args(r), K: up(r, k), V: up(r, v), Positions: up(r, positions), Seq: up(r, seq), First: up(r, first),
		IDs: up(r, ids), Plane: plane, Rows: int32(rows),
	}
	g := cudatest.Grid{Blocks: [3]int{ceil(rows, 16), heads, 1}, Threads: [3]int{64, 1, 1}, Shared: 16 * (dim + 2) * 4}
	bits := 8 * f.Bytes(1)
	launch(r, fmt.Sprintf("store_kv_%d", bits), g, &a)
	launch(r, "store_tokens", cudatest.Line(1, 32), &a)
	row := int(f.Bytes(heads * dim))
	for t := range rows {
		s, pos := int(seq[t]), int(positions[t])
		if s < 0 {
			continue
		}
		e := c.entry(pos/block, start[s]+int(first[s+1]-first[s]))
		if e < 0 {
			continue
		}
		page := c.tables[s*c.width+e]
		c.ref.Store(page, pos%block, k[t*row:(t+1)*row], v[t*row:(t+1)*row])
		copy(c.ref.Page(page)[plane+4*(pos%block):], cudatest.Bytes([]int32{ids[t]}))
	}
	if got := down[byte](r, a.Pages.Arena, len(c.arena)); string(got) != string(c.arena) {
		r.Errorf("%v, window %d, chunked %t: the arena differs", f, window, chunked)
	}
}
