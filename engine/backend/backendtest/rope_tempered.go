package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// ropeTempered tests Temperature and Rope with angles of its own for Q.
func (s *subject) ropeTempered(t *testing.T) {
	for _, e := range []backend.Temperature{{Beta: 0.1, Every: 4}, {Beta: 0.5, Every: 8192, Offset: 1}, {Beta: 1.5, Every: 1}} {
		for _, dim := range []int{64, 20} {
			t.Run(fmt.Sprintf("%g every %d from %d/%d", e.Beta, e.Every, e.Offset, dim), func(t *testing.T) { s.ropeTemperedOf(t, e, dim) })
		}
	}
}

func (s *subject) ropeTemperedOf(t *testing.T, e backend.Temperature, dim int) {
	const heads, kv, most, scale = 3, 1, 17, 1.25
	cols := (heads + 2*kv) * dim
	r, m := rng(uint64(dim)), &tensors{}
	x, freqs := normal(r, most*cols, 2), ropeFreqs(dim)
	table, inv := m.table("x", x, cols), m.literal("freqs", freqs)
	var angles, tempered, q, k backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 2, Samples: 1}, record: func(rec *backend.Recorder) {
		in := input(rec, table, cols)
		angles, tempered = rec.New("angles", kernels.F32, backend.PerToken, dim), rec.New("tempered", kernels.F32, backend.PerToken, dim)
		rec.Do(backend.Angles{InvFreq: inv, Scale: scale, Y: angles})
		rec.Do(backend.Angles{InvFreq: inv, Scale: scale, Y: tempered, Temperature: e})
		q, k = rec.New("q", kernels.F32, backend.PerToken, heads*dim), rec.New("k", kernels.F32, backend.PerToken, kv*dim)
		v := rec.New("v", kernels.F32, backend.PerToken, kv*dim)
		rec.Do(backend.Rope{QKV: in, Angles: angles, Q: q, K: k, V: v, Heads: heads, KVHeads: kv, HeadDim: dim, Rotary: dim, Tempered: true, QueryAngles: tempered})
	}})
	const late = 130000
	ids := upTo(most)
	rig.run(feed{tokens: ids[:7], at: 0}, feed{tokens: ids[7:], at: late})
	a, b, gq, gk := rig.floats(angles, most), rig.floats(tempered, most), rig.floats(q, most), rig.floats(k, most)
	want := make([]float32, dim)
	for row := range most {
		at := row
		if row >= 7 {
			at = late + row - 7
		}
		factor := 1 + float64(e.Beta)*math.Log(1+math.Floor(float64(at+e.Offset)/float64(e.Every)))
		ref.Angles(int32(at), freqs, scale, want)
		for i, y := range b[row*dim : (row+1)*dim] {
			if d := math.Abs(float64(y) - float64(want[i])*factor); !(d <= 6e-7*scale*factor) {
				t.Fatalf("angle %d of position %d: %v, want %v times %v", i, at, y, want[i], factor)
			}
		}
		for h := range heads {
			checkRotated(t, row, h, gq[(row*heads+h)*dim:][:dim], x[row*cols+h*dim:][:dim], b[row*dim:][:dim], 1e-6)
		}
		checkRotated(t, row, heads, gk[row*dim:][:dim], x[row*cols+heads*dim:][:dim], a[row*dim:][:dim], 0)
	}
}
