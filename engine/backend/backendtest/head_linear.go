package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// headLinear compares HeadLinear with kernels/ref: columns that it does not read or write, every
// format, and the bits of a row in every step.
func (s *subject) headLinear(t *testing.T) {
	for _, f := range kvFormats {
		for _, c := range []headCase{
			{f, 3, 32, 48, 40, 64, false},
			{f, 5, 64, 64, 17, 17, true},
			{f, 2, 128, 192, 512, 576, false},
			{f, 4, 512, 512, 128, 128, false},
		} {
			s.run(t, fmt.Sprintf("%v/%d heads of %dx%d", f, c.heads, c.in, c.out), func(t *testing.T) { c.test(t, s) })
		}
	}
}

// headCase is one shape: heads read the first in of x columns, and write the first out of y.
type headCase struct {
	format               kernels.Format
	heads, in, x, out, y int
	transposed           bool
}

func (c headCase) test(t *testing.T, s *subject) {
	const most = 33
	r, m := rng(uint64(c.in*c.out)), &tensors{}
	x, before := normal(r, most*c.heads*c.x, 1), normal(r, most*c.heads*c.y, 1)
	w := normal(r, c.heads*c.out*c.in, 1/math.Sqrt(float64(c.in)))
	for i := range x {
		if i%c.x >= c.in {
			x[i] = float32(math.NaN()) // not read
		}
	}
	table, other := m.table("x", x, c.heads*c.x), m.table("before", before, c.heads*c.y)
	weight := m.stack("w", c.format, c.heads, c.out, c.in, encode(c.format, c.stored(w)), c.transposed)
	var y backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		v := input(rec, table, c.heads*c.x)
		y = rec.New("y", kernels.F32, backend.PerToken, c.heads*c.y)
		rec.Do(backend.Embed{Ids: 0, Table: other, Y: y, Scale: 1})
		rec.Do(backend.HeadLinear{X: v, W: weight, Y: y, Heads: c.heads})
	}})
	w = decode(c.format, encode(c.format, w))
	var alone []float32
	for _, rows := range []int{1, 3, 17, most} {
		rig.run(feed{tokens: upTo(rows)})
		got := rig.floats(y, rows)
		for h := range c.heads {
			c.compare(t, fmt.Sprintf("%d rows, head %d", rows, h), h, rows, x, before, got, w[h*c.out*c.in:][:c.out*c.in], rig.res.Packed[weight].Format)
		}
		if alone == nil {
			alone = got
		} else if at := s.alike(got[:len(alone)], alone, 1.0/256); at >= 0 {
			t.Errorf("%d rows: number %d is %v, alone it is %v", rows, at, got[at], alone[at])
		}
	}
}

// stored returns the matrices in the order of their tensor.
func (c headCase) stored(w []float32) []float32 {
	if !c.transposed {
		return w
	}
	out := make([]float32, len(w))
	for h := range c.heads {
		at := h * c.out * c.in
		for o := range c.out {
			for i := range c.in {
				out[at+i*c.out+o] = w[at+o*c.in+i]
			}
		}
	}
	return out
}

// compare compares the columns of head h with a product of its own, and with those before the op.
func (c headCase) compare(t *testing.T, what string, h, rows int, x, before, got, w []float32, stored kernels.Format) {
	t.Helper()
	var in, y []float32
	for r := range rows {
		at := (r*c.heads + h) * c.y
		in, y = append(in, x[(r*c.heads+h)*c.x:][:c.in]...), append(y, got[at:at+c.out]...)
		if i := bits(got[at+c.out:at+c.y], before[at+c.out:at+c.y]); i >= 0 {
			t.Fatalf("%s, row %d: column %d is %v, was %v", what, r, c.out+i, got[at+c.out+i], before[at+c.out+i])
		}
	}
	want := make([]float32, rows*c.out)
	ref.Linear(ref.LinearArgs{Rows: rows, In: c.in, Out: c.out, X: in, W: encode(kernels.F32, w), Format: kernels.F32, Y: want, To: c.out, Row: make([]float32, c.in)})
	compareUnits(t, what, y, want, linearUnits(in, w, rows, c.in, c.out, c.format, stored))
}
