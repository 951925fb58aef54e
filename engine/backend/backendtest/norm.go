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

// layerNorm: within 2⁻²⁰ of the intermediate values.
func (s *subject) layerNorm(t *testing.T, n int) {
	const most, eps = 17, 1e-5
	r, m := rng(uint64(n)), &tensors{}
	x, w, b := normal(r, most*n, 2), normal(r, n, 1), normal(r, n, 1)
	for i := range x {
		x[i] += 5
	}
	tx, tw, tb := m.table("x", x, n), m.vector("w", kernels.F32, w), m.vector("b", kernels.F32, b)
	var y [2]backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		in := input(rec, tx, n)
		for i, bias := range []backend.WeightID{backend.NoWeight, tb} {
			y[i] = rec.New("y", kernels.F32, backend.PerToken, n)
			rec.Do(backend.Norm{X: in, Residual: backend.NoValue, W: tw, Eps: eps, Y: y[i], Plain: true, Bias: bias})
		}
	}})
	for _, rows := range []int{1, most} {
		rig.run(feed{tokens: upTo(rows)})
		for i, bias := range [][]float32{nil, b} {
			got, want := rig.floats(y[i], rows), make([]float32, n)
			for row := range rows {
				ref.LayerNorm(x[row*n:(row+1)*n], w, bias, eps, want)
				for j, g := range got[row*n : (row+1)*n] {
					bound := (6*math.Abs(float64(w[j])) + math.Abs(float64(b[j])) + math.Abs(float64(want[j]))) / (1 << 20)
					if d := math.Abs(float64(g) - float64(want[j])); !(d <= bound) {
						t.Fatalf("row %d, column %d: %v, want %v within %.2g", row, j, g, want[j], bound)
					}
				}
			}
		}
	}
}
