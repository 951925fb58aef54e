package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// norms tests the options of Norm beyond weights over whole rows, within 2⁻²⁰ of a result.
func (s *subject) norms(t *testing.T) {
	for _, n := range []int{8, 72, 512, 1000} {
		for name, o := range map[string]backend.Norm{
			"no weights": {W: backend.NoWeight}, "offset": {Offset: 1}, "scale": {Scale: 0.3}, "segments": {Segment: n / 8},
			"gate": {Gated: true}, "all": {Offset: 1, Scale: 1.7, Segment: n / 4, Gated: true, Residual: 1},
		} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) { s.normOf(t, o, n) })
		}
		t.Run(fmt.Sprintf("mean/%d", n), func(t *testing.T) { s.layerNorm(t, n) })
	}
}

// normOf tests a form of the op; Residual 1 means that there is one.
func (s *subject) normOf(t *testing.T, o backend.Norm, n int) {
	const most, eps = 17, 1e-6
	r, m := rng(uint64(n)), &tensors{}
	x, res, gate := normal(r, most*n, 3), normal(r, most*n, 2), normal(r, most*n, 2)
	width := n
	if o.Segment > 0 {
		width = o.Segment
	}
	w := normal(r, width, 1)
	tx, tr, tg, tw := m.table("x", x, n), m.table("r", res, n), m.table("g", gate, n), m.vector("w", kernels.F32, w)
	added := o.Residual == 1
	var residual backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		o.X, o.Residual, o.Eps = input(rec, tx, n), backend.NoValue, eps
		residual = input(rec, tr, n)
		if added {
			o.Residual = residual
		}
		o.Gate = input(rec, tg, n)
		if o.W != backend.NoWeight {
			o.W = tw
		}
		o.Y = o.X
		rec.Do(o)
	}})
	if o.W == backend.NoWeight {
		w = nil
	}
	for _, rows := range []int{1, 3, most} {
		rig.run(feed{tokens: upTo(rows)})
		got, sum, in := rig.floats(o.Y, rows), rig.floats(residual, rows), append([]float32(nil), x...)
		if added {
			ref.Add(in, res)
			if at := bits(sum, in[:rows*n]); at >= 0 {
				t.Fatalf("residual %d: %v, want %v", at, sum[at], in[at])
			}
		}
		want := make([]float32, rows*n)
		for i := 0; i < len(want); i += width {
			ref.NormOffset(in[i:i+width], nil, w, o.Offset, eps, want[i:i+width])
		}
		for i := range want {
			if o.Scale != 0 {
				want[i] *= o.Scale
			}
			if o.Gated {
				want[i] *= ref.SiLU(gate[i])
			}
		}
		near(t, "norm", got, want, 1.0/(1<<20))
	}
}

// layerNorm tests LayerNorm with and without weights and a bias, of a sum with a residual, in
// place and by segments, within 2⁻²⁰ of the intermediate values.
func (s *subject) layerNorm(t *testing.T, n int) {
	const most, eps = 17, 1e-5
	r, m := rng(uint64(n)), &tensors{}
	x, res, w, b := normal(r, most*n, 2), normal(r, most*n, 1), normal(r, n, 1), normal(r, n, 1)
	for i := range x {
		x[i] += 5
	}
	tx, tr, tw, tb := m.table("x", x, n), m.table("r", res, n), m.vector("w", kernels.F32, w), m.vector("b", kernels.F32, b)
	part := m.vector("part", kernels.F32, w[:n/4])
	forms := []struct {
		o               backend.Norm
		weights, bias   []float32
		residual, there bool // there: Y is X
		y, sum          backend.Value
	}{
		{o: backend.Norm{W: tw, Bias: backend.NoWeight}, weights: w},
		{o: backend.Norm{W: tw, Bias: tb}, weights: w, bias: b},
		{o: backend.Norm{W: backend.NoWeight, Bias: backend.NoWeight}, there: true},
		{o: backend.Norm{W: tw, Bias: backend.NoWeight}, weights: w, residual: true},
		{o: backend.Norm{W: tw, Bias: backend.NoWeight}, weights: w, residual: true, there: true},
		{o: backend.Norm{W: part, Bias: backend.NoWeight, Segment: n / 4}, weights: w[:n/4]},
	}
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		for i := range forms {
			f := &forms[i]
			o := f.o
			o.X, o.Residual, o.Eps, o.Plain = input(rec, tx, n), backend.NoValue, eps, true
			if f.residual {
				f.sum = input(rec, tr, n)
				o.Residual = f.sum
			}
			o.Y = o.X
			if !f.there {
				o.Y = rec.New("y", kernels.F32, backend.PerToken, n)
			}
			f.y = o.Y
			rec.Do(o)
		}
	}})
	for _, rows := range []int{1, most} {
		rig.run(feed{tokens: upTo(rows)})
		for i, f := range forms {
			in := append([]float32(nil), x[:rows*n]...)
			if f.residual {
				ref.Add(in, res[:rows*n])
				if at := bits(rig.floats(f.sum, rows), in); at >= 0 {
					t.Fatalf("form %d: the residual is no sum at %d", i, at)
				}
			}
			width := n
			if f.o.Segment > 0 {
				width = f.o.Segment
			}
			for at, got := 0, rig.floats(f.y, rows); at < len(in); at += width {
				checkLayerNorm(t, fmt.Sprintf("form %d, number %d", i, at), in[at:at+width], f.weights, f.bias, eps, got[at:at+width])
			}
		}
	}
}

// checkLayerNorm compares with a computation in float64; nil weights are ones, a nil bias zeros.
func checkLayerNorm(t *testing.T, what string, x, w, b []float32, eps float64, got []float32) {
	t.Helper()
	mean, sum, n := 0.0, 0.0, float64(len(x))
	for _, v := range x {
		mean += float64(v) / n
	}
	for _, v := range x {
		sum += (float64(v) - mean) * (float64(v) - mean)
	}
	inverse := 1 / math.Sqrt(sum/n+eps)
	for j, v := range x {
		weight, bias := 1.0, 0.0
		if w != nil {
			weight = float64(w[j])
		}
		if b != nil {
			bias = float64(b[j])
		}
		want := (float64(v)-mean)*inverse*weight + bias
		bound := ((math.Abs(float64(v))+math.Abs(mean))*inverse*math.Abs(weight) + math.Abs(bias) + math.Abs(want)) / (1 << 20)
		if d := math.Abs(float64(got[j]) - want); !(d <= bound) {
			t.Fatalf("%s+%d: %v, want %v within %.2g", what, j, got[j], want, bound)
		}
	}
}
