package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// parts: a matrix whose parts are stored in several formats gives the same bits as separate
// matrices, if the backend stores the parts separately.
func (s *subject) parts(t *testing.T) {
	const most, in = 17, 512
	r, m := rng(5), &tensors{}
	table := m.table("x", normal(r, most*in, 1), in)
	whole := backend.WeightSpec{Name: "whole", Group: "test", Cols: in, Use: backend.Multiply}
	var alone []backend.WeightID
	for i, p := range []struct {
		format kernels.Format
		rows   int
	}{{kernels.Q4_K, 40}, {kernels.Q4_K, 24}, {kernels.Q6_K, 33}, {kernels.Q8_0, 7}} {
		name := fmt.Sprint("part", i)
		alone = append(alone, m.matrix(name, backend.Multiply, p.format, p.rows, in, random(r, p.format, p.rows*in, 0.05)))
		whole.Rows += p.rows
		whole.Parts = append(whole.Parts, backend.Part{Tensor: name, Rows: p.rows, Format: p.format})
	}
	bias := normal(r, whole.Rows, 1)
	m.specs = append(m.specs, whole)
	weight, biasID := backend.WeightID(len(m.specs)-1), m.vector("bias", kernels.F32, bias)
	var y backend.Value
	var each []backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		v := input(rec, table, in)
		y = rec.New("y", kernels.F32, backend.PerToken, whole.Rows)
		rec.Do(backend.Linear{X: v, W: weight, Bias: biasID, Y: y})
		for i, w := range alone {
			part := rec.New(fmt.Sprint("y", i), kernels.F32, backend.PerToken, m.specs[w].Rows)
			rec.Do(backend.Linear{X: v, W: w, Bias: backend.NoWeight, Y: part})
			each = append(each, part)
		}
	}})
	if rig.res.Packed[weight].Format != kernels.Invalid {
		t.Skip("not run: this backend converts them")
	}
	for _, rows := range []int{1, 3, most} {
		rig.run(feed{tokens: upTo(rows)})
		got, at := rig.floats(y, rows), 0
		for i, v := range each {
			n := whole.Parts[i].Rows
			for j, want := range rig.floats(v, rows) {
				o := at + j%n
				if want += bias[o]; math.Float32bits(got[j/n*whole.Rows+o]) != math.Float32bits(want) {
					t.Fatalf("%d rows: row %d output %d is %v, by itself %v", rows, j/n, o, got[j/n*whole.Rows+o], want)
				}
			}
			at += n
		}
	}
}
