package ref

import (
	"math"
	"slices"
	"testing"
)

func TestRoute(t *testing.T) {
	ids, w := make([]int32, 2), make([]float32, 2)
	Router{}.Route([]float32{1, 3, 2, 3}, ids, w)
	if ids[0] != 1 || ids[1] != 3 {
		t.Errorf("picked %v of two equals", ids)
	}
	close32(t, "equals share", w, 0.5, 0.5)
	Router{Scale: []float32{4, 1, 2}}.Route([]float32{0, 0, 1}, ids, w)
	e := float32(1 / (1 + math.Exp(-1)))
	close32(t, "scaled", w, 2*e, 4*(1-e))
}

// TestRouter compares other scores and selections with numbers computed by hand.
func TestRouter(t *testing.T) {
	log := func(x float64) float32 { return float32(math.Log(x)) }
	odds := func(p float64) float32 { return log(p / (1 - p)) }
	for _, c := range []struct {
		name    string
		router  Router
		logits  []float32
		ids     []int32
		weights []float32
	}{
		{"softmax over all", Router{Score: Softmax}, []float32{log(1), log(5), log(2), log(2)}, []int32{1, 2}, []float32{0.5, 0.2}},
		{"its sum 1, times 2", Router{Score: Softmax, Normalize: true, Factor: 2}, []float32{log(1), log(5), log(2), log(2)}, []int32{1, 2}, []float32{10. / 7, 4. / 7}},
		{"sigmoid", Router{Score: Sigmoided, Factor: 2.5}, []float32{odds(0.2), odds(0.9), odds(0.4)}, []int32{1, 2}, []float32{2.25, 1}},
		{"logit", Router{Score: Logit}, []float32{-3, -1.5, -2}, []int32{1}, []float32{-1.5}},
		{"the correction selects only", Router{Score: Sigmoided, Normalize: true, Correction: []float32{0.75, 0, 0}}, []float32{odds(0.2), odds(0.9), odds(0.4)},
			[]int32{0, 1}, []float32{2. / 11, 9. / 11}},
		{"the best pair of a group", Router{Score: Sigmoided, Groups: 3, TopGroups: 1}, []float32{odds(0.9), odds(0.1), odds(0.1), odds(0.5), odds(0.7), odds(0.5), odds(0.6), odds(0.55), odds(0.01)},
			[]int32{4, 3}, []float32{0.7, 0.5}},
		{"the best of a group", Router{Score: Sigmoided, Groups: 3, TopGroups: 1, GroupTop: 1}, []float32{odds(0.9), odds(0.1), odds(0.2), odds(0.5), odds(0.7), odds(0.5), odds(0.6), odds(0.55), odds(0.01)},
			[]int32{0, 2}, []float32{0.9, 0.2}},
		{"two groups of three", Router{Score: Softmax, Groups: 3, TopGroups: 2}, []float32{log(10), log(1), log(30), log(30), log(20), log(9)}, []int32{2, 3}, []float32{0.3, 0.3}},
	} {
		ids, w := make([]int32, len(c.ids)), make([]float32, len(c.ids))
		c.router.Route(c.logits, ids, w)
		if !slices.Equal(ids, c.ids) {
			t.Errorf("%s: picked %v, want %v", c.name, ids, c.ids)
		}
		near(t, c.name, w, c.weights...)
	}
	w := []float32{0}
	Router{Score: Sigmoided, Normalize: true}.Route([]float32{-1000, -1000}, []int32{0}, w)
	if w[0] != 0 {
		t.Errorf("scores of 0 have weight %v", w[0])
	}
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
		got = append(got, Conv(w, state, x, 0))
	}
	close32(t, "conv", got, SiLU(100), SiLU(210), SiLU(321))
	close32(t, "state", state, 2, 3)
	close32(t, "bias", []float32{Conv(w, state, 4, -30)}, SiLU(402))
}

// TestMamba2 follows a state of two numbers over two tokens.
func TestMamba2(t *testing.T) {
	state, y := make([]float32, 2), make([]float32, 1)
	step := func(x float32) {
		Mamba2(Mamba2Args{X: []float32{x}, B: []float32{1, 2}, C: []float32{3, 1}, Dt: 30, Bias: -5, ALog: float32(math.Log(math.Log(2) / 25)), D: 0.5, State: state, Y: y})
	}
	step(1) // dt is 25, the decay 1/2
	close32(t, "first state", state, 25, 50)
	close32(t, "first result", y, 3*25+50+0.5)
	step(2)
	close32(t, "second state", state, 12.5+50, 25+100)
	close32(t, "second result", y, 3*62.5+125+1)
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
