//go:build cgo

package cpu

import (
	"runtime"
	"testing"
	"unsafe"

	xcpu "golang.org/x/sys/cpu"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cpu/native"
)

// TestAttentionTileCounts checks what the attention of a prompt on tiles does, per 1,024 products of
// a query with a key that the mask allows. It loads one tile for each product, since four products
// share four loads, and packs each key and value once for all rows of a tile of queries.
func TestAttentionTileCounts(t *testing.T) {
	if !xcpu.X86.HasAVX512BF16 || !xcpu.X86.HasAVX512VBMI {
		t.Skip("not run: this CPU has no AVX-512 BF16 and VBMI")
	}
	for _, c := range []struct {
		tokens, dim                     int
		loads, products, stores, unpack float64 // at most
	}{
		{512, 64, 17.1, 17.1, 5.9, 101},
		{512, 128, 34.1, 34.1, 7.5, 201},
		{2048, 64, 16.3, 16.3, 5.3, 90},
	} {
		const heads = 4
		got := native.CountTiles(promptOnTiles(t, c.tokens, heads, c.dim))
		seen := float64(heads*c.tokens*(c.tokens+1)/2) / 1024
		per := func(x int64) float64 { return float64(x) / seen }
		l, p, s, u := per(got.Loads), per(got.Products), per(got.Stores), per(got.Unpacks)
		if l > c.loads || p > c.products || s > c.stores || u > c.unpack || p == 0 {
			t.Errorf("%d tokens of %d: %.2f loads, %.2f products, %.2f stores, %.1f instructions of packing; want at most %v, %v, %v, %v",
				c.tokens, c.dim, l, p, s, u, c.loads, c.products, c.stores, c.unpack)
		}
	}
}

// TestAttentionDecodeTiles checks that a decode step of few rows uses no tiles: it reads the pages
// in place.
func TestAttentionDecodeTiles(t *testing.T) {
	if !xcpu.X86.HasAVX512BF16 || !xcpu.X86.HasAVX512VBMI {
		t.Skip("not run: this CPU has no AVX-512 BF16 and VBMI")
	}
	if c := native.CountTiles(promptOnTiles(t, 1, 8, 64)); c.Products != 0 || c.Loads != 0 {
		t.Errorf("a decode step loads %d tiles and multiplies %d", c.Loads, c.Products)
	}
}

// promptOnTiles returns a function that runs attention of a prompt without history, on pages of
// bf16 and one K/V head, with tiles in memory. Its numbers are zeros.
func promptOnTiles(t *testing.T, tokens, heads, dim int) func() {
	f, ok := Kernel(OpAttention, SoftAMX)
	if !ok {
		t.Skip("not run: this build has no", SoftAMX)
	}
	q, y := make([]float32, tokens*heads*dim), make([]float32, tokens*heads*dim)
	k, v, page := make([]uint16, tokens*dim), make([]uint16, tokens*dim), make([]uint16, 2*16*dim)
	positions, first, table := make([]int32, tokens), []int32{0, int32(tokens)}, make([]int32, (tokens+15)/16)
	for i := range positions {
		positions[i] = int32(i)
	}
	size := AttentionWorkspace(dim, 0)
	work := make([]byte, size+64)
	at := (uintptr(unsafe.Pointer(&work[0])) + 63) &^ 63
	a := &Attention{
		Pages: Pages{Arena: uintptr(unsafe.Pointer(&page[0])), Table: uintptr(unsafe.Pointer(&table[0])), PageBytes: int64(4 * 16 * dim), V: int64(2 * 16 * dim),
			PerSlab: 1 << 20, Width: int32(len(table)), Block: 16, Format: int32(kernels.BF16), KVHeads: 1, HeadDim: int32(dim), KeyDim: int32(dim)},
		Q: uintptr(unsafe.Pointer(&q[0])), K: uintptr(unsafe.Pointer(&k[0])), V: uintptr(unsafe.Pointer(&v[0])), Y: uintptr(unsafe.Pointer(&y[0])),
		Positions: uintptr(unsafe.Pointer(&positions[0])), First: uintptr(unsafe.Pointer(&first[0])), Work: at, WorkBytes: size,
		Heads: int32(heads), Scale: 1, Threads: 1,
	}
	return func() {
		native.Call(f, uintptr(unsafe.Pointer(a)), []int32{int32(tokens), 0, 1})
		runtime.KeepAlive([]any{q, y, k, v, page, positions, first, table, work, a})
	}
}
