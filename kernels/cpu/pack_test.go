package cpu

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"vapp.dev/kernels"
)

func randomBytes(n int64) []byte {
	b := make([]byte, n)
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// TestPackRowsInAnyOrder checks that a weight packs to the same bytes for any runs of rows. The
// packed bytes must be those of the source and zeros, except where nibbles are rearranged.
func TestPackRowsInAnyOrder(t *testing.T) {
	for _, f := range SupportedFormats("generic") {
		const rows = 100
		cols := 96
		if n, _ := f.Block(); n > 96 {
			cols = n
		}
		src := randomBytes(f.Bytes(int64(rows * cols)))
		n, _, ok := LinearLayout("generic", f, rows, cols)
		if !ok {
			t.Fatal(f)
		}
		whole, pieces := make([]byte, n), make([]byte, n)
		PackRows("generic", f, whole, rows, cols, 0, src)
		size := int(f.Bytes(int64(cols)))
		for _, run := range [][2]int{{99, 100}, {31, 64}, {0, 31}, {64, 99}} {
			PackRows("generic", f, pieces, rows, cols, run[0], src[run[0]*size:run[1]*size])
		}
		if !bytes.Equal(whole, pieces) {
			t.Errorf("%v: packing in pieces differs", f)
		}
		_, apart := blocksOf[f]
		if got, want := histogram(whole), histogram(src); got != want && f != kernels.Q4_0 && f != kernels.Q4_1 && f != kernels.I4 && f != kernels.MXFP4 && f != kernels.NVFP4 && !apart {
			t.Errorf("%v: packed bytes are not the source's and zeros", f)
		}
	}
}

// histogram counts all byte values except zero.
func histogram(b []byte) (h [256]int) {
	for _, v := range b {
		h[v]++
	}
	h[0] = 0
	return h
}

func TestPackRowsPanics(t *testing.T) {
	for name, f := range map[string]func(){
		"short packed":   func() { PackRows("generic", kernels.F32, make([]byte, 32*4*8-1), 32, 8, 0, make([]byte, 32)) },
		"rows past end":  func() { PackRows("generic", kernels.F32, make([]byte, 4096), 32, 8, 31, make([]byte, 64)) },
		"negative row":   func() { PackRows("generic", kernels.F32, make([]byte, 4096), 32, 8, -1, make([]byte, 32)) },
		"part of a row":  func() { PackRows("generic", kernels.F32, make([]byte, 4096), 32, 8, 0, make([]byte, 31)) },
		"part of blocks": func() { PackRows("generic", kernels.Q8_0, make([]byte, 4096), 1, 33, 0, make([]byte, 68)) },
		"no kernel":      func() { PackRows("generic", kernels.Q4_K, make([]byte, 4096), 1, 256, 0, make([]byte, 144)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// TestLinearLayout checks that packed sizes are the format's own plus the padding.
func TestLinearLayout(t *testing.T) {
	for _, c := range []struct {
		f          kernels.Format
		rows, cols int
		want       int64
	}{
		{kernels.F32, 1, 1, 128}, {kernels.F16, 33, 3, 384}, {kernels.BF16, 32, 33, 2176}, {kernels.BF16, 64, 576, 73728},
		{kernels.Q8_0, 49152, 576, 49152 * 576 / 32 * 34}, {kernels.Q4_0, 31, 32, 576}, {kernels.Q4_1, 3072, 576, 3072 * 576 / 32 * 20},
		{kernels.F8E4M3, 33, 129, 2 * 130 * 32}, {kernels.F8E5M2, 32, 64, 2048}, {kernels.MXFP4, 64, 2880, 64 * 2880 / 32 * 17}, {kernels.MXFP4, 32, 32, 576},
		{kernels.NVFP4, 64, 2048, 64 * 2048 / 16 * 9}, {kernels.NVFP4, 33, 48, 2 * 2 * 576},
		{kernels.Q4_K, 32, 256, 32 * 256 * 19 / 32}, {kernels.Q6_K, 1, 256, 2 * 3392}, {kernels.Q5_0, 32, 32, 704}, {kernels.IQ4_NL, 33, 64, 4 * 576},
		{kernels.IQ4_XS, 32, 256, 32 * 256 * 35 / 64}, {kernels.IQ2_XXS, 64, 512, 64 * 2 * 66}, {kernels.TQ1_0, 33, 256, 64 * 54},
	} {
		got, _, ok := LinearLayout("avx512", c.f, c.rows, c.cols)
		if !ok || got != c.want {
			t.Errorf("%v [%d,%d]: %d bytes, %v, want %d", c.f, c.rows, c.cols, got, ok, c.want)
		}
	}
	for s, want := range []int64{2 * 300 * 32, 2 * (300*32 + 128), 2 * (300*32 + 3*128), 2 * (300*32 + 64)} {
		m := Matrix{Variant: "avx512", Format: kernels.F8E4M3, Scales: Scales(s), Rows: 40, Cols: 300}
		if got, _, ok := m.Layout(); !ok || got != want {
			t.Errorf("%v: %d bytes, %v, want %d", m, got, ok, want)
		}
		if m.Format = kernels.BF16; s > 0 {
			if _, _, ok := m.Layout(); ok {
				t.Errorf("%v was accepted", m)
			}
		}
	}
	for _, c := range []string{"avx1024/f32/4/4", "avx512/q4_k/4/128", "avx512/q8_0/4/33", "avx512/f32/0/4", "avx512/f32/4/0", "avx512/i32/4/4"} {
		var variant, format string
		var rows, cols int
		if _, err := fmt.Sscanf(spaced(c), "%s %s %d %d", &variant, &format, &rows, &cols); err != nil {
			t.Fatal(err)
		}
		f, _ := kernels.Parse(format)
		if _, _, ok := LinearLayout(variant, f, rows, cols); ok {
			t.Errorf("%s was accepted", c)
		}
	}
}

func spaced(s string) string { return string(bytes.ReplaceAll([]byte(s), []byte("/"), []byte(" "))) }
