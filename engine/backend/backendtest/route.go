package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// route tests Route: it selects the same experts as the oracle, the lowest id of equals.
// Weights are within 2⁻²², plus the error of float32 differences of logits: 2⁻²⁴ of the row's
// largest logit, in the exponential and in the sum.
func (s *subject) route(t *testing.T) {
	for _, c := range [][2]int{{1, 1}, {8, 2}, {32, 4}, {128, 8}, {257, 10}, {6, 6}} {
		for _, scaled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d of %d, scaled %t", c[1], c[0], scaled), func(t *testing.T) { s.routeOf(t, c[0], c[1], scaled) })
		}
	}
}

func (s *subject) routeOf(t *testing.T, experts, top int, scaled bool) {
	const most = 33
	r, m := rng(uint64(experts)), &tensors{}
	x := normal(r, most*experts, 2)
	for i := range x {
		switch {
		case i/experts == 0:
			x[i] = 1 // all equal
		case i/experts == 1:
			x[i] = float32(i % 3) // many equal
		case i/experts == 2 && i%2 == 0:
			x[i] = float32(math.Inf(-1))
		case i/experts == 3:
			x[i] *= 1e4 // one has all the weight
		}
	}
	x[2*experts] = 3
	scale := normal(r, experts, 1)
	table, w := m.table("x", x, experts), m.vector("scale", kernels.F32, scale)
	if !scaled {
		scale, w = nil, backend.NoWeight
	}
	var ids, weights backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		in := input(rec, table, experts)
		ids, weights = rec.New("ids", kernels.I32, backend.PerToken, top), rec.New("weights", kernels.F32, backend.PerToken, top)
		rec.Do(backend.Route{Logits: in, Ids: ids, Weights: weights, Top: top, Scale: w})
	}})
	for _, rows := range []int{1, 5, most} {
		rig.run(feed{tokens: upTo(rows)})
		gotIDs, got := rig.ints(ids, rows), rig.floats(weights, rows)
		wantIDs, want := make([]int32, top), make([]float32, top)
		for row := range rows {
			ref.Route(x[row*experts:(row+1)*experts], scale, wantIDs, want)
			for k, id := range gotIDs[row*top : (row+1)*top] {
				if id != wantIDs[k] {
					t.Fatalf("row %d: experts %v, want %v", row, gotIDs[row*top:(row+1)*top], wantIDs)
				}
			}
			widest := float64(x[row*experts+int(wantIDs[0])]) - float64(x[row*experts+int(wantIDs[top-1])])
			near(t, "weights", got[row*top:(row+1)*top], want, 1.0/(1<<22)+min(widest, 104)/(1<<23)) // e⁻¹⁰⁴ is 0
		}
	}
}
