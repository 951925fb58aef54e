//go:build linux && cgo

package cpu

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"vapp.dev/kernels/cpu/native"
	"vapp.dev/kernels/ref"
)

// TestQuantizeE4M3 compares with the oracle, including ties and subnormals.
func TestQuantizeE4M3(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	x := []float32{448, -448, 0, float32(math.Copysign(0, -1)), 0x1p-9, 0x1p-10, 3 * 0x1p-10, 17, 19, 0x1.fp-7, 0x1.fffp-7, 447, 432, 433}
	for range 4000 {
		x = append(x, float32(math.Ldexp(rng.Float64()*2-1, rng.IntN(24)-15)))
	}
	for i := range x {
		x[i] = max(-448, min(448, x[i]))
	}
	for _, factor := range []float32{1, 0.0037, 1e-30} { // times a scale
		y, got := make([]float32, len(x)), make([]byte, len(x))
		for i, v := range x {
			y[i] = v * factor
		}
		scale, ok := QuantizeE4M3(y, got)
		if want := float32(448*factor) / 448; !ok || scale != want {
			t.Fatalf("scale %v, %v, want %v", scale, ok, want)
		}
		for i, v := range y {
			if want := ref.FloatToE4M3(v / scale); got[i] != want {
				t.Errorf("%v is %#x, want %#x", v, got[i], want)
			}
		}
	}
	if scale, ok := QuantizeE4M3([]float32{0, 0}, make([]byte, 2)); !ok || scale != 1 {
		t.Errorf("zeros have scale %v, %v", scale, ok)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if _, ok := QuantizeE4M3([]float32{1, float32(bad), 2}, make([]byte, 3)); ok {
			t.Errorf("%v was accepted", bad)
		}
	}
}

// TestExpertMirrors compares the sizes of the Go structs with those of C.
func TestExpertMirrors(t *testing.T) {
	_, stack, experts := native.StructSizes()
	if stack != unsafe.Sizeof(Stack{}) || experts != unsafe.Sizeof(Experts{}) {
		t.Errorf("%d and %d bytes in C, %d and %d in Go", stack, experts, unsafe.Sizeof(Stack{}), unsafe.Sizeof(Experts{}))
	}
}
