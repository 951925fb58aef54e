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
		for _, c := range []storeCase{{}, {window: 20}, {window: 20, chunked: true}, {key: 8}, {key: 8, latent: true}, {key: 40, latent: true}} {
			c.test(r, f)
		}
	}
}

// storeCase is a kind of pages. key numbers of a key are stored, 0: all; the others can be
// computed from the value, or are the value.
type storeCase struct {
	window          int
	key             int
	chunked, latent bool
}

// test stores chunks of three sequences, the second of which has no rows, and two rows of no
// sequence.
func (s storeCase) test(r *rig, f kernels.Format) {
	const block, heads, dim = 16, 2, 24
	c := newCache(r, f, block, heads, max(dim, s.key), s.window, 3, 64) // K and V have as much room
	c.ref.HeadDim, c.ref.Chunked, c.ref.KeyDim, c.ref.Latent = dim, s.chunked, s.key, s.latent
	given := dim
	if s.latent {
		given = s.key
	}
	first, start := []int32{0, 21, 21, 22}, []int{13, 0, 40}
	var positions, seq []int32
	for n := range 3 {
		for i := range first[n+1] - first[n] {
			positions, seq = append(positions, int32(start[n])+i), append(seq, int32(n))
		}
	}
	positions, seq = append(positions, 0, 3), append(seq, -1, -1)
	rows := len(seq)
	k, _ := stored(f, r.floats(rows*heads*given, 1))
	v, _ := stored(f, r.floats(rows*heads*dim, 1))
	ids := make([]int32, rows)
	for i := range ids {
		ids[i] = int32(1000 + i)
	}
	const plane = 0 // before the layer
	a := cuda.StoreArgs{
		Pages: c.args(r), K: up(r, k), V: up(r, v), Positions: up(r, positions), Seq: up(r, seq), First: up(r, first),
		IDs: up(r, ids), Plane: plane, Rows: int32(rows), Latent: yes(s.latent),
	}
	g := cudatest.Grid{Blocks: [3]int{ceil(rows, 16), heads, 1}, Threads: [3]int{64, 1, 1}, Shared: cuda.StoreShared(given, int(f.Bytes(1)))}
	beside := r.packStored(f, a, c.arena, g.Shared, rows)
	bits := 8 * f.Bytes(1)
	launch(r, fmt.Sprintf("store_kv_%d", bits), g, &a)
	launch(r, "store_tokens", cudatest.Line(1, 32), &a)
	row, key := int(f.Bytes(heads*dim)), int(f.Bytes(int64(heads*given)))
	for t := range rows {
		n, pos := int(seq[t]), int(positions[t])
		if n < 0 {
			continue
		}
		e := c.entry(pos/block, start[n]+int(first[n+1]-first[n]))
		if e < 0 {
			continue
		}
		page := c.tables[n*c.width+e]
		c.ref.Store(page, pos%block, k[t*key:(t+1)*key], v[t*row:(t+1)*row])
		copy(c.ref.Page(page)[plane+4*(pos%block):], cudatest.Bytes([]int32{ids[t]}))
	}
	beside["a launch of its own"] = a.Pages.Arena
	for by, arena := range beside {
		if got := down[byte](r, arena, len(c.arena)); string(got) != string(c.arena) {
			r.Errorf("%v, %+v: the arena differs, stored by %s", f, s, by)
		}
	}
}

// packStored stores the rows of a in other arenas, by launches that also pack rows of X or join attention, and returns the
// arenas. What is packed must not depend on that.
func (r *rig) packStored(f kernels.Format, a cuda.StoreArgs, arena []byte, shared, rows int) map[string]cuda.Ptr {
	r.Helper()
	const in = 72
	to, half := roundings[r.rnd.IntN(len(roundings))], roundings[r.rnd.IntN(2)]
	x := r.floats(rows*in, 1)
	b := cuda.StoreBeside{Bytes: int32(f.Bytes(1)), Store: a}
	out := map[string]cuda.Ptr{}
	stored := func(by string, g cudatest.Grid, dim int, run func(g cudatest.Grid)) {
		b.Across, g.Shared = int32(g.Blocks[dim]), shared
		g.Blocks[dim] += int(a.Pages.KVHeads)
		r.eachSchedule(func() []float32 {
			b.Store.Pages.Arena = up(r, arena)
			run(g)
			return nil
		})
		launch(r, "store_tokens", cudatest.Line(1, 32), &b.Store)
		out[by] = b.Store.Pages.Arena
	}
	p := r.packArgs(to, x, rows, in)
	stored("store_pack", grid(to, cuda.FromAttention, rows, in), 0, func(g cudatest.Grid) {
		launch(r, to.Kernel(cuda.FromAttention), g, &cuda.StorePackArgs{Pack: p, Beside: b})
	})
	r.checkPacked("packed beside stores", to, p, x)
	n := cuda.NormPackArgs{Pack: r.packArgs(half, x, rows, in), Plain: alloc[float32](r, rows*in), Eps: 1e-6, Scale: 1}
	stored("norm_pack", grid(half, cuda.FromNorm, rows, in), 0, func(g cudatest.Grid) {
		n.Beside = b
		launch(r, half.Kernel(cuda.FromNorm), g, &n)
	})
	r.checkPacked("normalized beside stores", half, n.Pack, down[float32](r, n.Plain, rows*in))
	chain := cuda.ChainPackArgs{Norm: n, Kinds: cuda.ChainPost}
	stored("chain_pack", grid(half, cuda.FromChain, rows, in), 0, func(g cudatest.Grid) {
		chain.Norm.Beside, chain.Norm.Residual = b, up(r, x)
		launch(r, half.Kernel(cuda.FromChain), g, &chain)
	})
	const heads, dim, splits = 3, 32, 2
	parts := r.floats(rows*heads*splits*(dim+2), 1)
	j := cuda.JoinArgs{Attention: cuda.AttentionArgs{Pages: cuda.Pages{KVHeads: 1, HeadDim: dim}, Heads: heads, Splits: splits, Partial: up(r, parts)}}
	join := func(g cudatest.Grid) []float32 {
		j.Attention.Y = alloc[float32](r, rows*heads*dim)
		launch(r, "attention_join", g, &j)
		return down[float32](r, j.Attention.Y, rows*heads*dim)
	}
	g := cudatest.Grid{Blocks: [3]int{rows, heads, 1}, Threads: [3]int{32, 1, 1}}
	want := join(g)
	stored("attention_join", g, 1, func(g cudatest.Grid) {
		j.Beside = b
		r.near("joined beside stores", join(g), want, 0)
	})
	return out
}
