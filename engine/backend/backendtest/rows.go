package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// rows tests the ops that work row by row.
func (s *subject) rows(t *testing.T) {
	for _, f := range weightFormats {
		t.Run("embed/"+f.String(), func(t *testing.T) { s.embed(t, f) })
	}
	for _, n := range []int{1, 31, 64, 576, 1000} {
		t.Run(fmt.Sprintf("norm/%d", n), func(t *testing.T) { s.norm(t, n) })
		t.Run(fmt.Sprintf("swiglu/%d", n), func(t *testing.T) { s.swiglu(t, n) })
	}
	t.Run("chunks", s.chunks)
	t.Run("gather", s.gather)
	t.Run("output rows", s.outputRows)
	t.Run("collectives", s.collectives)
}

// embed is exact: lookups only widen the stored format.
func (s *subject) embed(t *testing.T, f kernels.Format) {
	const vocab, cols = 37, 512
	m := &tensors{}
	b := random(rng(7), f, vocab*cols, 0.02)
	for _, use := range []backend.Use{backend.Lookup, backend.Lookup | backend.Multiply} {
		table := m.matrix(fmt.Sprintf("table%d", use), use, f, vocab, cols, b)
		for _, scale := range []float32{1, 3.5} {
			var y backend.Value
			r := s.rig(t, plan{tensors: m, vocab: vocab, bucket: backend.Bucket{Tokens: 33, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
				y = input(rec, table, cols)
				rec.Do(backend.Embed{Ids: 0, Table: table, Y: y, Scale: scale})
			}})
			ids := []int32{0, 36, 5, 5, 17, 1, 2, 30}
			r.run(feed{tokens: ids})
			as, stored := f, b
			if to := r.res.Packed[table].Format; to != f { // converted at load
				as, stored = to, encode(to, decode(f, b))
			}
			want, got := make([]float32, cols), r.floats(y, len(ids))
			for i, id := range ids {
				ref.Embed(as, stored, id, scale, want)
				if at := bits(got[i*cols:(i+1)*cols], want); at >= 0 {
					t.Fatalf("use %d, token %d, column %d: %v, want %v", use, id, at, got[i*cols+at], want[at])
				}
			}
		}
	}
}

// norm: the sum into the residual is exact, the result within 2⁻²⁰.
func (s *subject) norm(t *testing.T, n int) {
	const most = 33
	r, m := rng(uint64(n)), &tensors{}
	x, res := normal(r, most*n, 3), normal(r, most*n, 100)
	w := normal(r, n, 1)
	tx, tr, tw := m.table("x", x, n), m.table("r", res, n), m.vector("w", kernels.F32, w)
	var plain, added, residual backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		v := input(rec, tx, n)
		residual = input(rec, tr, n)
		plain = rec.New("plain", kernels.F32, backend.PerToken, n)
		rec.Do(backend.Norm{X: v, Residual: backend.NoValue, W: tw, Eps: 1e-5, Y: plain})
		added = v // in place
		rec.Do(backend.Norm{X: v, Residual: residual, W: tw, Eps: 1e-3, Y: added})
	}})
	for _, rows := range []int{1, 3, 17, most} {
		rig.run(feed{tokens: upTo(rows)})
		p, a, sum := rig.floats(plain, rows), rig.floats(added, rows), rig.floats(residual, rows)
		for i := range rows {
			row := func(m []float32) []float32 { return m[i*n : (i+1)*n] }
			want, old := make([]float32, n), append([]float32(nil), row(res)...)
			ref.Norm(row(x), nil, w, 1e-5, want)
			near(t, "norm", row(p), want, 1.0/(1<<20))
			ref.Norm(row(x), old, w, 1e-3, want)
			near(t, "norm with residual", row(a), want, 1.0/(1<<20))
			if at := bits(row(sum), old); at >= 0 {
				t.Fatalf("residual of row %d, column %d: %v, want %v", i, at, row(sum)[at], old[at])
			}
		}
	}
}

// swiglu: within 2⁻²⁰ of a result.
func (s *subject) swiglu(t *testing.T, n int) {
	const most = 33
	r, m := rng(uint64(n)), &tensors{}
	x := normal(r, most*2*n, 4)
	x[0] = -100 // the exponential overflows float32
	if n > 1 {
		x[1] = 100
	}
	table := m.table("x", x, 2*n)
	var y backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		v := input(rec, table, 2*n)
		y = rec.New("y", kernels.F32, backend.PerToken, n)
		rec.Do(backend.GLU{X: v, Y: y})
	}})
	for _, rows := range []int{1, 3, 17, most} {
		rig.run(feed{tokens: upTo(rows)})
		want, got := make([]float32, n), rig.floats(y, rows)
		for i := range rows {
			in := x[i*2*n : (i+1)*2*n]
			ref.SwiGLU(in[:n], in[n:], want)
			near(t, "swiglu", got[i*n:(i+1)*n], want, 1.0/(1<<20))
		}
	}
}

// chunks: a gated MLP that computes its tokens in chunks, in place, gives the same bits as
// one that computes all at once.
func (s *subject) chunks(t *testing.T) {
	const most, chunk, in, n = 200, 64, 96, 160
	m := &tensors{}
	table := m.table("x", normal(rng(6), most*in, 1), in)
	up := m.matrix("up", backend.Multiply, kernels.F32, 2*n, in, encode(kernels.F32, normal(rng(7), 2*n*in, 0.1)))
	down := m.matrix("down", backend.Multiply, kernels.F32, in, n, encode(kernels.F32, normal(rng(8), in*n, 0.1)))
	mlp := func(t *testing.T, b backend.Bucket) (*rig, backend.Value) {
		var x backend.Value
		r := s.rig(t, plan{tensors: m, vocab: most, bucket: b, record: func(rec *backend.Recorder) {
			x = input(rec, table, in)
			for _, part := range rec.Chunks(x) {
				rows := rec.Info(part).Rows
				gu, a := rec.New("gate_up", kernels.F32, rows, 2*n), rec.New("act", kernels.F32, rows, n)
				rec.Do(backend.Linear{X: part, W: up, Bias: backend.NoWeight, Y: gu})
				rec.Do(backend.GLU{X: gu, Y: a})
				rec.Do(backend.Linear{X: a, W: down, Bias: backend.NoWeight, Y: part})
				rec.Free(gu, a)
			}
		}})
		return r, x
	}
	for _, rows := range []int{1, chunk, chunk + 1, most} {
		whole, x := mlp(t, backend.Bucket{Tokens: most, Seqs: 1, Samples: 1})
		parts, y := mlp(t, backend.Bucket{Tokens: most, Seqs: 1, Samples: 1, Chunk: chunk})
		whole.run(feed{tokens: upTo(rows)})
		parts.run(feed{tokens: upTo(rows)})
		if at := bits(parts.floats(y, rows), whole.floats(x, rows)); at >= 0 {
			t.Errorf("%d rows in chunks of %d: number %d differs", rows, chunk, at)
		}
	}
}

// gather copies rows, any of them, in any order.
func (s *subject) gather(t *testing.T) {
	const cols, most = 33, 17
	m := &tensors{}
	x := normal(rng(3), most*cols, 1)
	table := m.table("x", x, cols)
	var y backend.Value
	r := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 8}, record: func(rec *backend.Recorder) {
		v := input(rec, table, cols)
		y = rec.New("y", kernels.F32, backend.PerSample, cols)
		rec.Do(backend.Gather{X: v, Y: y})
	}})
	picked := []int{16, 0, 3, 3, 7}
	r.run(feed{tokens: upTo(most), sampled: picked})
	got := r.floats(y, len(picked))
	for i, p := range picked {
		if at := bits(got[i*cols:(i+1)*cols], x[p*cols:(p+1)*cols]); at >= 0 {
			t.Errorf("row %d is not row %d (column %d)", i, p, at)
		}
	}
}

// outputRows copies rows to the set's own buffer, which a step of the other set does not
// change.
func (s *subject) outputRows(t *testing.T) {
	const cols, most = 33, 17
	m := &tensors{}
	x := normal(rng(5), most*cols, 1)
	table := m.table("x", x, cols)
	r := s.rig(t, plan{tensors: m, vocab: most, outputCols: cols, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 8}, record: func(rec *backend.Recorder) {
		v := input(rec, table, cols)
		y := rec.New("y", kernels.F32, backend.PerSample, cols)
		rec.Do(backend.Gather{X: v, Y: y})
		rec.Do(backend.OutputRows{X: y})
	}})
	for set, picked := range [][]int{{16, 0, 3, 3, 7}, {2}} {
		r.launch(r.fill(set, []feed{{tokens: upTo(most), sampled: picked}}))
	}
	for set, picked := range [][]int{{16, 0, 3, 3, 7}, {2}} {
		got := r.dev.Step(set).Outputs
		for i, p := range picked {
			if at := bits(got[i*cols:(i+1)*cols], x[p*cols:(p+1)*cols]); at >= 0 {
				t.Errorf("set %d: row %d is not row %d (column %d)", set, i, p, at)
			}
		}
	}
}

// collectives of one rank change nothing: a sum of one, a copy.
func (s *subject) collectives(t *testing.T) {
	const cols, most = 33, 17
	m := &tensors{}
	x := normal(rng(4), most*cols, 1)
	table := m.table("x", x, cols)
	var v, y backend.Value
	r := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		v = input(rec, table, cols)
		rec.Do(backend.AllReduce{X: v}) // omitted by the recorder
		y = rec.New("y", kernels.F32, backend.PerToken, cols)
		rec.Do(backend.AllGather{X: v, Y: y})
	}})
	r.run(feed{tokens: upTo(5)})
	for what, got := range map[string][]float32{"all_reduce": r.floats(v, 5), "all_gather": r.floats(y, 5)} {
		if at := bits(got, x[:5*cols]); at >= 0 {
			t.Errorf("%s of one rank: element %d is %v, want %v", what, at, got[at], x[at])
		}
	}
}

// near compares within a relative bound; values below 10⁻³⁰ count as 0.
func near(t *testing.T, what string, got, want []float32, bound float64) {
	t.Helper()
	for i := range want {
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= bound*math.Abs(float64(want[i]))+1e-30) {
			t.Fatalf("%s: element %d is %v, want %v within %.2g of it", what, i, got[i], want[i], bound)
		}
	}
}
