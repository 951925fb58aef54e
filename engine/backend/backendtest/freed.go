package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// freed tests values that only products read, so that a backend may store them only in the
// form that products read. Results are within 1 % of the root mean square of a column, enough
// for rounding x to bf16 twice.
func (s *subject) freed(t *testing.T) {
	const most, hidden, inner, eps = 150, 256, 160, 1e-5
	r, m := rng(11), &tensors{}
	x, res, norm := normal(r, most*hidden, 3), normal(r, most*hidden, 2), normal(r, hidden, 1)
	matrix := func(name string, rows, cols int) (backend.WeightID, []float32) {
		b := random(r, kernels.BF16, rows*cols, 1/math.Sqrt(float64(cols)))
		return m.matrix(name, backend.Multiply, kernels.BF16, rows, cols, b), decode(kernels.BF16, b)
	}
	up, wUp := matrix("up", 2*inner, hidden)
	side, wSide := matrix("side", 48, hidden)
	down, wDown := matrix("down", hidden, inner)
	tx, tr, tw := m.table("x", x, hidden), m.table("r", res, hidden), m.vector("w", kernels.F32, norm)
	var sum, z, y backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		in := input(rec, tx, hidden)
		sum = input(rec, tr, hidden)
		value := func(name string, cols int) backend.Value {
			return rec.New(name, kernels.F32, backend.PerToken, cols)
		}
		n, gu := value("n", hidden), value("gu", 2*inner)
		z = value("z", 48)
		rec.Do(backend.Norm{X: in, Residual: sum, W: tw, Eps: eps, Y: n})
		rec.Do(backend.Linear{X: n, W: up, Bias: backend.NoWeight, Y: gu})
		rec.Do(backend.Linear{X: n, W: side, Bias: backend.NoWeight, Y: z})
		rec.Free(n)
		act := value("act", inner)
		rec.Do(backend.GLU{X: gu, Y: act})
		rec.Free(gu)
		y = value("y", hidden)
		rec.Do(backend.Linear{X: act, W: down, Bias: backend.NoWeight, Y: y})
		rec.Free(act)
	}})
	multiply := func(x, w []float32, in, out int) []float32 {
		rows := len(x) / in
		y := make([]float32, rows*out)
		ref.Linear(ref.LinearArgs{Rows: rows, In: in, Out: out, X: x, W: encode(kernels.F32, w), Format: kernels.F32, Y: y, To: out, Row: make([]float32, in)})
		return y
	}
	for _, rows := range []int{1, 9, most} {
		rig.run(feed{tokens: upTo(rows)})
		total, n := append([]float32(nil), res[:rows*hidden]...), make([]float32, rows*hidden)
		ref.Add(total, x[:rows*hidden])
		for i := range rows {
			ref.Norm(total[i*hidden:(i+1)*hidden], nil, norm, eps, n[i*hidden:(i+1)*hidden])
		}
		gu, act := multiply(n, wUp, hidden, 2*inner), make([]float32, rows*inner)
		for i := range act {
			g := float64(gu[i/inner*2*inner+i%inner])
			act[i] = float32(g/(1+math.Exp(-g))) * gu[i/inner*2*inner+inner+i%inner]
		}
		if at := bits(rig.floats(sum, rows), total); at >= 0 {
			t.Fatalf("%d rows: element %d of the residual is not the sum", rows, at)
		}
		alike(t, fmt.Sprintf("%d rows, the first product", rows), rig.floats(z, rows), multiply(n, wSide, hidden, 48))
		alike(t, fmt.Sprintf("%d rows, the second product", rows), rig.floats(y, rows), multiply(act, wDown, inner, hidden))
	}
}

// alike compares the root mean square of got − want with that of want.
func alike(t *testing.T, what string, got, want []float32) {
	t.Helper()
	var off, all float64
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		off, all = off+d*d, all+float64(want[i])*float64(want[i])
	}
	if share := math.Sqrt(off / all); !(share <= 0.01) {
		t.Errorf("%s: off by %.3g of its size", what, share)
	}
}
