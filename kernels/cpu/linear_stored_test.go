//go:build linux && cgo

package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// TestDequantize compares C's decoding of any bits with that of package ref, bit for bit except for
// NaNs.
func TestDequantize(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, f := range SupportedFormats("generic") {
		elems, size := f.Block()
		src := make([]byte, 64*size)
		for i := range src {
			src[i] = byte(rng.Uint32())
		}
		got, want := make([]float32, 64*elems), make([]float32, 64*elems)
		Dequantize(f, src, got)
		ref.Dequantize(f, src, want)
		for i := range got {
			if g, w := got[i], want[i]; math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
				t.Errorf("%v: element %d of block %d is %v, package ref has %v", f, i%elems, i/elems, g, w)
				break
			}
		}
	}
}

// TestStoredBytes checks that a panel takes the bytes of its blocks in a file, and that a product
// reserves memory for at least one unpacked panel, for an even number of several, and for no more
// than the second cache has.
func TestStoredBytes(t *testing.T) {
	for _, f := range storedFormats {
		for _, rows := range []int{1, 32, 100} {
			got, _, ok := LinearLayout("generic", f, rows, 1024)
			if want := roundUp(int64(rows), panelRows) * f.Bytes(1024); !ok || got != want {
				t.Errorf("%v: %d rows of 1024 take %d bytes, %v; want %d", f, rows, got, ok, want)
			}
		}
	}
	for in := 256; in <= 1<<17; in *= 2 {
		bytes, each := expandedBytes(in), expanded.bytes(int64(in))
		if n := bytes / each; bytes%each != 0 || n < 1 || n > storedMost || n > 1 && (n%2 != 0 || bytes > storedWork) || n == 1 && 2*each <= storedWork {
			t.Errorf("%d inputs: %d panels of %d bytes", in, n, each)
		}
	}
	if _, ok := Int8("avx512", kernels.IQ3_S); ok {
		t.Error("iq3_s has int8 kernels")
	}
}
