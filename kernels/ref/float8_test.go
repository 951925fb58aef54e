package ref

import (
	"math"
	"testing"

	"vapp.dev/kernels"
)

// TestFloat8 compares some codes with the OCP tables, and checks a round trip of every finite
// code.
func TestFloat8(t *testing.T) {
	for _, c := range []struct {
		f    kernels.Format
		code byte
		want float32
	}{
		{kernels.F8E4M3, 0x38, 1}, {kernels.F8E4M3, 0x7e, 448}, {kernels.F8E4M3, 0x01, 1.0 / 512}, {kernels.F8E4M3, 0xb9, -1.125},
		{kernels.F8E5M2, 0x3c, 1}, {kernels.F8E5M2, 0x7b, 57344}, {kernels.F8E5M2, 0x01, 1.0 / 65536}, {kernels.F8E5M2, 0xfc, float32(math.Inf(-1))},
	} {
		got := make([]float32, 1)
		Dequantize(c.f, []byte{c.code}, got)
		if got[0] != c.want {
			t.Errorf("%v code %#x is %v, want %v", c.f, c.code, got[0], c.want)
		}
	}
	for _, f := range []kernels.Format{kernels.F8E4M3, kernels.F8E5M2} {
		for code := range 256 {
			x, back := make([]float32, 1), make([]byte, 1)
			Dequantize(f, []byte{byte(code)}, x)
			if x[0] != x[0] || math.IsInf(float64(x[0]), 0) {
				continue
			}
			if Quantize(f, x, back); back[0] != byte(code) {
				t.Errorf("%v code %#x (%v) comes back as %#x", f, code, x[0], back[0])
			}
		}
	}
	for _, c := range []struct {
		x    float32
		want byte
	}{
		{1.0625, 0x38}, {1.1875, 0x3a}, {1.07, 0x39}, {1e9, 0x7e}, {-1e9, 0xfe}, {float32(math.Inf(1)), 0x7e}, {1e-9, 0}, {float32(math.NaN()), 0x7f},
	} {
		if got := FloatToE4M3(c.x); got != c.want {
			t.Errorf("%v is %#x in e4m3, want %#x", c.x, got, c.want)
		}
	}
}

func TestMXFP4(t *testing.T) {
	halves, block := make([]byte, 32), make([]byte, 34)
	halves[0], halves[15], halves[16] = 0x71, 0x8f, 0x23
	kernels.JoinBlocks(halves, []byte{128, 126}, block)
	got := make([]float32, 64)
	Dequantize(kernels.MXFP4, block, got)
	for i, want := range map[int]float32{0: 1, 1: 12, 30: -12, 31: 0, 32: 0.75, 33: 0.5, 34: 0} {
		if got[i] != want {
			t.Errorf("element %d is %v, want %v", i, got[i], want)
		}
	}
}

func TestScales(t *testing.T) {
	s := &Scales{Values: []float32{2, 3, 5, 7}, Rows: 2, Cols: 2, Across: 2}
	row := []float32{1, 1, 1}
	s.Apply(3, row)
	close32(t, "second row of blocks", row, 5, 5, 7)
	(*Scales)(nil).Apply(0, row)
}
