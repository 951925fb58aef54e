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
			t.Run(fmt.Sprintf("%d of %d, scaled %t", c[1], c[0], scaled), func(t *testing.T) { s.routeOf(t, c[0], c[1], scaled, backend.Route{}) })
		}
	}
	for name, o := range map[string]backend.Route{
		"softmax": {Score: backend.Softmax}, "softmax, sum 1": {Score: backend.Softmax, Normalize: true, Corrected: true},
		"sigmoid": {Score: backend.Sigmoid, Factor: 2.5}, "sigmoid, corrected": {Score: backend.Sigmoid, Corrected: true, Normalize: true, Factor: 2.5},
		"groups": {Score: backend.Sigmoid, Groups: 8, TopGroups: 4, Normalize: true}, "corrected groups": {Score: backend.Sigmoid, Corrected: true, Groups: 4, TopGroups: 1},
		"groups by one": {Score: backend.Softmax, Groups: 8, TopGroups: 3, GroupTop: 1, Factor: 16},
		"logits":        {Score: backend.Logit},
		"many groups":   {Score: backend.Softmax, Groups: 32, TopGroups: 3},
	} {
		t.Run(name, func(t *testing.T) { s.routeOf(t, 64, 6, o.Factor != 0, o) })
	}
}

// routeOf tests o among a number of experts.
func (s *subject) routeOf(t *testing.T, experts, top int, scaled bool, o backend.Route) {
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
		case i/experts == 3 && o.Score == backend.SelectedSoftmax:
			x[i] *= 1e4 // one has all the weight
		}
	}
	x[2*experts] = 3
	oracle := ref.Router{Score: ref.Score(o.Score), Normalize: o.Normalize, Groups: o.Groups, TopGroups: o.TopGroups, GroupTop: o.GroupTop, Factor: o.Factor}
	table := m.table("x", x, experts)
	if o.Scale = backend.NoWeight; scaled {
		oracle.Scale = normal(r, experts, 1)
		o.Scale = m.vector("scale", kernels.F32, oracle.Scale)
	}
	if o.Corrected {
		oracle.Correction = normal(r, experts, 0.3)
		o.Correction = m.vector("correction", kernels.F32, oracle.Correction)
	}
	rig := s.rig(t, plan{tensors: m, vocab: most, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		o.Logits, o.Top = input(rec, table, experts), top
		o.Ids, o.Weights = rec.New("ids", kernels.I32, backend.PerToken, top), rec.New("weights", kernels.F32, backend.PerToken, top)
		rec.Do(o)
	}})
	for _, rows := range []int{1, 5, most} {
		rig.run(feed{tokens: upTo(rows)})
		gotIDs, got := rig.ints(o.Ids, rows), rig.floats(o.Weights, rows)
		wantIDs, want := make([]int32, top), make([]float32, top)
		for row := range rows {
			oracle.Route(x[row*experts:(row+1)*experts], wantIDs, want)
			for k, id := range gotIDs[row*top : (row+1)*top] {
				if id != wantIDs[k] {
					t.Fatalf("row %d: experts %v, want %v", row, gotIDs[row*top:(row+1)*top], wantIDs)
				}
			}
			lowest := float64(x[row*experts+int(wantIDs[0])])
			for _, id := range wantIDs {
				lowest = min(lowest, float64(x[row*experts+int(id)]))
			}
			widest := float64(x[row*experts+int(wantIDs[0])]) - lowest
			if o.Score != backend.SelectedSoftmax {
				widest = 16 // of all logits
			}
			near(t, "weights", got[row*top:(row+1)*top], want, 1.0/(1<<22)+min(widest, 104)/(1<<23)) // e⁻¹⁰⁴ is 0
		}
	}
}
