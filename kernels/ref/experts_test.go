package ref

import (
	"math"
	"testing"
)

func TestRoute(t *testing.T) {
	ids, w := make([]int32, 2), make([]float32, 2)
	Route([]float32{1, 3, 2, 3}, nil, ids, w)
	if ids[0] != 1 || ids[1] != 3 {
		t.Errorf("picked %v of two equals", ids)
	}
	close32(t, "equals share", w, 0.5, 0.5)
	Route([]float32{0, 0, 1}, []float32{4, 1, 2}, ids, w)
	e := float32(1 / (1 + math.Exp(-1)))
	close32(t, "scaled", w, 2*e, 4*(1-e))
}

// TestGLU compares the gates with numbers computed by hand.
func TestGLU(t *testing.T) {
	y := make([]float32, 2)
	ClampedGLU([]float32{10, -1}, []float32{-9, 0.5}, 7, 1.702, 1, y)
	close32(t, "clamped", y, -6*7*Sigmoid(7*1.702), 1.5*-1*Sigmoid(-1.702))
	close32(t, "gelu", []float32{GELUTanh(1), GELUTanh(-2)}, 0.8411920, -0.045402307)
	GeGLU([]float32{1, 0}, []float32{2, 3}, y)
	close32(t, "geglu", y, 2*0.8411920, 0)
	close32(t, "softcap", []float32{Softcap(60, 30), Softcap(-3, 30)}, 30*float32(math.Tanh(2)), -30*float32(math.Tanh(0.1)))
	LayerNorm([]float32{1, 3}, []float32{1, 2}, []float32{0, 1}, 0, y)
	close32(t, "layer norm", y, -1, 3)
}

// TestConv moves a kernel of three over a sequence.
func TestConv(t *testing.T) {
	w, state := []float32{1, 10, 100}, make([]float32, 2)
	var got []float32
	for _, x := range []float32{1, 2, 3} {
		got = append(got, Conv(w, state, x))
	}
	close32(t, "conv", got, SiLU(100), SiLU(210), SiLU(321))
	close32(t, "state", state, 2, 3)
}

// TestDelta: a value stored under a key is read back with this key, and β = 1 replaces it.
func TestDelta(t *testing.T) {
	a := DeltaArgs{Q: []float32{2, 0}, K: []float32{3, 0}, V: []float32{5, 7}, B: 40, A: -40, State: make([]float32, 4), Y: make([]float32, 2)}
	Delta(a)
	r := float32(1 / math.Sqrt2)
	near(t, "read back", a.Y, 5*r, 7*r)
	a.V = []float32{1, 2}
	Delta(a)
	near(t, "replaced", a.Y, r, 2*r)
	a.K, a.V = []float32{0, 1}, []float32{9, 9}
	Delta(a)
	near(t, "another key leaves it", a.Y, r, 2*r)
	a.A, a.B = 40, -40 // e^(−1·40): forgotten, nothing written
	Delta(a)
	near(t, "decayed", a.Y, 0, 0)
}

func near(t *testing.T, what string, got []float32, want ...float32) {
	t.Helper()
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-5 {
			t.Errorf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}
