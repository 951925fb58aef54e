package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// elements tests the elementwise ops, and those that copy rows.
func (s *subject) elements(t *testing.T) {
	for _, n := range []int{1, 31, 64, 1000} {
		for name, a := range map[string]backend.Activation{
			"gelu": {Act: backend.GELUTanh}, "clamped": {Limit: 7, Alpha: 1.702, Shift: 1}, "shifted": {Alpha: 1.5, Shift: 0.5},
			"paired": {Paired: true}, "clamped pairs": {Limit: 2, Alpha: 1.702, Shift: 1, Paired: true},
		} {
			t.Run(fmt.Sprintf("glu %s/%d", name, n), func(t *testing.T) { s.glu(t, a, n) })
		}
		t.Run(fmt.Sprintf("in place/%d", n), func(t *testing.T) { s.inPlace(t, n) })
		t.Run(fmt.Sprintf("concat/%d", n), func(t *testing.T) { s.concat(t, n) })
		t.Run(fmt.Sprintf("reorder/%d", n), func(t *testing.T) { s.reorder(t, n, n) })
		t.Run(fmt.Sprintf("some columns/%d", n), func(t *testing.T) { s.reorder(t, n, (n+1)/2) })
	}
	t.Run("gather_last", s.gatherLast)
	t.Run("embed part", s.embedPart)
	t.Run("sequences", s.rowsOfSequences)
}

// curved returns a number's error bound: 2⁻²⁰ of the result, scaled by the effect of rounding
// the exponent, plus what 1 + tanh loses in the oracle's float64.
func curved(want, exponent, scale float64) float64 {
	return math.Abs(want)*(1+2*math.Abs(exponent))/(1<<20) + math.Abs(scale)*1e-15 + 1e-30
}

func (s *subject) glu(t *testing.T, a backend.Activation, n int) {
	const most = 17
	r, m := rng(uint64(n)), &tensors{}
	x := normal(r, most*2*n, 4)
	x[0] = -60
	if n > 1 {
		x[1], x[2], x[3] = 60, 0, -9
	}
	table := m.table("x", x, 2*n)
	var y backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		v := input(rec, table, 2*n)
		y = rec.New("y", kernels.F32, backend.PerToken, n)
		rec.Do(backend.GLU{X: v, Y: y, Activation: a})
	}})
	for _, rows := range []int{1, 3, most} {
		rig.run(feed{tokens: upTo(rows)})
		got := rig.floats(y, rows)
		for i, g := range got {
			row := x[i/n*2*n:][:2*n]
			gate, up := row[i%n], row[n+i%n]
			if a.Paired {
				gate, up = row[2*(i%n)], row[2*(i%n)+1]
			}
			want, exponent := gatedBy(a, gate, up)
			if d := math.Abs(float64(g - want)); !(d <= curved(float64(want), exponent, float64(gate*up))) {
				t.Fatalf("row %d, column %d: act(%v)·%v is %v, want %v", i/n, i%n, gate, up, g, want)
			}
		}
	}
}

// gatedBy returns the oracle's result for one pair, and the exponent in it.
func gatedBy(a backend.Activation, gate, up float32) (want float32, exponent float64) {
	y := []float32{0}
	switch {
	case a.Limit != 0 || a.Alpha != 0 || a.Shift != 0:
		ref.ClampedGLU([]float32{gate}, []float32{up}, a.Limit, a.Alpha, a.Shift, y)
	case a.Act == backend.GELUTanh:
		ref.GeGLU([]float32{gate}, []float32{up}, y)
		g := float64(gate)
		return y[0], 1.6 * (g + 0.044715*g*g*g)
	default:
		ref.SwiGLU([]float32{gate}, []float32{up}, y)
	}
	return y[0], float64(gate)
}

// inPlace: Add is exact; Gate, Activate and Softcap are within the bound of curved.
func (s *subject) inPlace(t *testing.T, n int) {
	const most, limit = 17, 5
	r, m := rng(uint64(n)), &tensors{}
	x, z := normal(r, most*n, 4), normal(r, most*n, 4)
	x[0], z[0] = 1e-3, -50
	one := normal(r, most, 4)
	to := m.table("one", one, 1)
	tx, tz, scale := m.table("x", x, n), m.table("z", z, n), m.literal("scale", []float32{0.7})
	var v [8]backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		other := input(rec, tz, n)
		for i := range v {
			v[i] = input(rec, tx, n)
		}
		rec.Do(backend.Add{X: other, Into: v[0], Scale: backend.NoWeight})
		rec.Do(backend.Add{X: other, Into: v[1], Scale: scale})
		rec.Do(backend.Gate{X: v[2], Gate: other})
		rec.Do(backend.Activate{X: v[3]})
		rec.Do(backend.Activate{X: v[4], Act: backend.GELUTanh})
		rec.Do(backend.Softcap{X: v[5], Cap: limit})
		rec.Do(backend.Gate{X: v[6], Gate: input(rec, to, 1)})
		rec.Do(backend.Activate{X: v[7], Act: backend.GELU})
	}})
	for _, rows := range []int{1, 3, most} {
		rig.run(feed{tokens: upTo(rows)})
		var got [8][]float32
		for i := range v {
			got[i] = rig.floats(v[i], rows)
		}
		for i := range rows * n {
			g := float64(x[i])
			if want := 0.5 * g * (1 + math.Erf(g/math.Sqrt2)); !(math.Abs(float64(got[7][i])-want) <= math.Abs(g)/(1<<22)) {
				t.Fatalf("gelu of %v is %v, want %v", x[i], got[7][i], want)
			}
			for j, c := range []struct {
				want            float32
				exponent, exact float64
			}{
				{x[i] + z[i], 0, 0}, {(x[i] + z[i]) * 0.7, 0, 0}, {x[i] * ref.Sigmoid(z[i]), float64(z[i]), 1},
				{ref.SiLU(x[i]), g, 1}, {ref.GELUTanh(x[i]), 1.6 * (g + 0.044715*g*g*g), 1}, {ref.Softcap(x[i], limit), 0, 1},
				{x[i] * ref.Sigmoid(one[i/n]), float64(one[i/n]), 1},
			} {
				if d := math.Abs(float64(got[j][i] - c.want)); !(d <= c.exact*curved(float64(c.want), c.exponent, g)) {
					t.Fatalf("op %d, number %d: %v with %v gives %v, want %v", j, i, x[i], z[i], got[j][i], c.want)
				}
			}
		}
	}
}

// concat copies columns.
func (s *subject) concat(t *testing.T, n int) {
	const most, b = 5, 3
	m := &tensors{}
	x, z := normal(rng(1), most*n, 1), normal(rng(2), most*b, 1)
	tx, tz := m.table("x", x, n), m.table("z", z, b)
	var y backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		left, right := input(rec, tx, n), input(rec, tz, b)
		y = rec.New("y", kernels.F32, backend.PerToken, n+b)
		rec.Do(backend.Concat{A: left, B: right, Y: y})
	}})
	rig.run(feed{tokens: upTo(most)})
	for row, got := range split(rig.floats(y, most), n+b) {
		if want := append(append([]float32(nil), x[row*n:(row+1)*n]...), z[row*b:(row+1)*b]...); bits(got, want) >= 0 {
			t.Fatalf("row %d is %v, want %v", row, got, want)
		}
	}
}

// reorder selects columns of n in another order: all, or a part.
func (s *subject) reorder(t *testing.T, n, part int) {
	const most = 5
	m := &tensors{}
	x, order := normal(rng(1), most*n, 1), make([]float32, part)
	for i, from := range rng(2).Perm(n)[:part] {
		order[i] = float32(from)
	}
	tx, to := m.table("x", x, n), m.literal("order", order)
	var y backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		v := input(rec, tx, n)
		y = rec.New("y", kernels.F32, backend.PerToken, part)
		rec.Do(backend.Reorder{X: v, Y: y, Order: to})
	}})
	rig.run(feed{tokens: upTo(most)})
	for row, got := range split(rig.floats(y, most), part) {
		for i, from := range order {
			if want := x[row*n+int(from)]; got[i] != want {
				t.Fatalf("row %d column %d is %v, want %v", row, i, got[i], want)
			}
		}
	}
}

// gatherLast copies the last row of each sequence.
func (s *subject) gatherLast(t *testing.T) {
	const cols, most = 33, 17
	m := &tensors{}
	x := normal(rng(3), most*cols, 1)
	table := m.table("x", x, cols)
	var y backend.Value
	r := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 3, Samples: 1}, record: func(rec *backend.Recorder) {
		v := input(rec, table, cols)
		y = rec.New("y", kernels.F32, backend.PerSeq, cols)
		rec.Do(backend.GatherLast{X: v, Y: y})
	}})
	r.run(feed{tokens: upTo(5)}, feed{tokens: []int32{9}, at: 70}, feed{tokens: []int32{3, 12}, at: 1})
	for i, got := range split(r.floats(y, 3), cols) {
		if last := []int{4, 9, 12}[i]; bits(got, x[last*cols:(last+1)*cols]) >= 0 {
			t.Errorf("sequence %d: its row is not row %d", i, last)
		}
	}
}

// embedPart: ids of other ranks give zeros.
func (s *subject) embedPart(t *testing.T) {
	const cols, first, have, vocab = 32, 10, 7, 20
	m := &tensors{}
	x := normal(rng(4), have*cols, 1)
	for _, use := range []backend.Use{backend.Lookup, backend.Lookup | backend.Multiply} {
		table := m.matrix(fmt.Sprintf("table%d", use), use, kernels.F32, have, cols, encode(kernels.F32, x))
		var y backend.Value
		r := s.rig(t, plan{tensors: m, vocab: vocab, bucket: backend.Bucket{Tokens: vocab, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
			ids := rec.New("ids", kernels.I32, backend.PerToken, 1)
			y = rec.New("y", kernels.F32, backend.PerToken, cols)
			rec.Do(backend.Tokens{Out: ids})
			rec.Do(backend.Embed{Ids: ids, Table: table, Y: y, Scale: 1, Row0: first})
		}})
		r.run(feed{tokens: upTo(vocab)})
		for id, got := range split(r.floats(y, vocab), cols) {
			want := make([]float32, cols)
			if id >= first && id < first+have {
				copy(want, x[(id-first)*cols:])
			}
			if bits(got, want) >= 0 {
				t.Errorf("use %d: row %d is %v, want %v", use, id, got, want)
			}
		}
	}
}

// rowsOfSequences: ops treat rows of sequences like rows of tokens.
func (s *subject) rowsOfSequences(t *testing.T) {
	const cols, most, seqs = 24, 9, 3
	m := &tensors{}
	x := normal(rng(5), most*cols, 1)
	table, w := m.table("x", x, cols), m.vector("w", kernels.F32, normal(rng(6), cols, 1))
	var last, all backend.Value
	r := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: seqs, Samples: 1}, record: func(rec *backend.Recorder) {
		all = input(rec, table, cols)
		last = rec.New("last", kernels.F32, backend.PerSeq, cols)
		rec.Do(backend.GatherLast{X: all, Y: last})
		for _, v := range []backend.Value{all, last} {
			rec.Do(backend.Norm{X: v, Residual: backend.NoValue, W: w, Eps: 1e-5, Y: v})
			rec.Do(backend.Activate{X: v})
		}
	}})
	r.run(feed{tokens: upTo(4)}, feed{tokens: []int32{4}}, feed{tokens: []int32{5, 6, 7, 8}})
	rows := split(r.floats(all, most), cols)
	for i, got := range split(r.floats(last, seqs), cols) {
		if want := rows[[]int{3, 4, 8}[i]]; bits(got, want) >= 0 {
			t.Errorf("sequence %d: %v, its token gives %v", i, got, want)
		}
	}
}
