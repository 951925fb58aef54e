package backendtest

import (
	"math"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// Error is the difference of an op's results, with weights stored in some format, from
// float64 sums over the float32 values of the weights.
type Error struct {
	Weights, Op string
	Kernel      string  // the kernel that the layout chose for the weight
	RMS, Max    float64 // in units of the results' root mean square
}

// Errors measures Linear and Experts of a backend on every kind of weights.
func Errors(t *testing.T, o backend.Opener, settings backend.Settings) (all []Error) {
	s := open(t, o, settings)
	plain := []scaledFormat{{name: "f32", source: kernels.F32}, {name: "f16", source: kernels.F16}, {name: "bf16", source: kernels.BF16}}
	for _, f := range slices.Concat(plain, unrounded(), blockFormats(weightFormats), blockFormats(alikeFormats)) {
		all = append(all, s.linearError(t, f), s.mixtureError(t, f))
	}
	return all
}

func (s *subject) linearError(t *testing.T, f scaledFormat) Error {
	const rows, in, out = 17, 512, 96
	r, m := rng(7), &tensors{}
	x := normal(r, rows*in, 1)
	table := m.table("x", x, in)
	weight, w := f.stack(m, r, "w", matrices{cols: in}, out)
	var y backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: rows, bucket: backend.Bucket{Tokens: rows, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		v := input(rec, table, in)
		y = rec.New("y", kernels.F32, backend.PerToken, out)
		rec.Do(backend.Linear{X: v, W: weight, Bias: backend.NoWeight, Y: y})
	}})
	rig.run(feed{tokens: upTo(rows)})
	e := errorOf{}
	for i, got := range rig.floats(y, rows) {
		want := 0.0
		for k := range in {
			want += float64(x[i/out*in+k]) * float64(w[i%out*in+k])
		}
		e.add(float64(got), want)
	}
	return e.of(f.name, "Linear", rig.res.Packed[weight].Kernel)
}

func (s *subject) mixtureError(t *testing.T, f scaledFormat) Error {
	m := mixture{format: f, experts: 8, top: 2, cols: 256, width: 256}
	r := m.rig(t, s)
	const rows = 17
	r.run(feed{tokens: upTo(rows)})
	all, ids, shares := r.floats(m.result, rows), r.ints(m.ids, rows), r.floats(m.shares, rows)
	e := errorOf{}
	for row := range rows {
		for i, want := range m.row(s, row, ids[row*m.top:][:m.top], shares[row*m.top:][:m.top]) {
			e.add(float64(all[row*m.cols+i]), want)
		}
	}
	return e.of(f.name, "Experts", r.res.Packed[2].Kernel)
}

// errorOf sums squares of differences and of expected values.
type errorOf struct {
	n                 int
	off, square, most float64
}

func (e *errorOf) add(got, want float64) {
	d := got - want
	e.n++
	e.off, e.square, e.most = e.off+d*d, e.square+want*want, max(e.most, math.Abs(d))
}

func (e *errorOf) of(weights, op, kernel string) Error {
	return Error{weights, op, kernel, math.Sqrt(e.off / e.square), e.most / math.Sqrt(e.square/float64(e.n))}
}
