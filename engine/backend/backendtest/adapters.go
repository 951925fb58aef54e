package backendtest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// adapters compares Adapt with kernels/ref: three modules of uneven widths, rows of several slots and of
// none. A row has the same bits alone and among others, and without an adapter those that it had.
func (s *subject) adapters(t *testing.T) {
	for _, f := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
		for _, in := range []int{5, 64, 100} {
			for _, rank := range []int{1, 8} {
				t.Run(fmt.Sprintf("%v/%d inputs/rank %d", f, in, rank), func(t *testing.T) { s.adapt(t, f, in, rank) })
			}
		}
	}
}

func (s *subject) adapt(t *testing.T, f kernels.Format, in, rank int) {
	const most, slots, out = 70, 3, 171
	ends := []int{7, 40, out}
	r, m := rng(uint64(in*rank)), &tensors{}
	x, y0 := normal(r, most*in, 1), normal(r, most*out, 1)
	a, b := encode(f, normal(r, slots*len(ends)*rank*in, 1)), encode(f, normal(r, slots*rank*out, 1))
	w := backend.Adapters{Rank: rank, Modules: len(ends), Ends: [backend.MaxModules]int(ends)}
	xs, ys := m.table("x", x, in), m.table("y", y0, out)
	w.A = m.matrix("a", backend.Lookup, f, slots*len(ends)*rank, in, a)
	w.B = m.matrix("b", backend.Lookup, f, slots*rank, out, b)
	var y backend.Value
	pl := plan{tensors: m, vocab: most, slots: slots, bucket: backend.Bucket{Tokens: most, Seqs: 1, Samples: 1}, record: func(rec *backend.Recorder) {
		v := input(rec, xs, in)
		y = input(rec, ys, out)
		mid := rec.New("mid", kernels.F32, backend.PerToken, len(ends)*rank)
		rec.Do(backend.Adapt{X: v, Mid: mid, Y: y, Adapters: w})
	}}
	if err := s.layout.Runs(m.specs, s.reserve(t, pl).Programs[0]); errors.Is(err, backend.ErrUnsupported) {
		t.Skipf("not run: %v", err)
	}
	rig := s.rig(t, pl)
	run := func(tokens []int32, slot func(i int) int32) []float32 {
		bound := rig.fill(0, []feed{{tokens: tokens}})
		for i := range tokens {
			rig.dev.Step(0).Adapters[i] = slot(i)
		}
		rig.launch(bound)
		return rig.floats(y, len(tokens))
	}
	slotOf := func(i int) int32 { return int32((i+i/5)%(slots+1)) - 1 }
	got := run(upTo(most), slotOf)
	for i := range most {
		row, want := got[i*out:(i+1)*out], slices.Clone(y0[i*out:(i+1)*out])
		slot := int(slotOf(i))
		if slot < 0 {
			if !slices.Equal(row, want) {
				t.Fatalf("row %d has no adapter and changes", i)
			}
			continue
		}
		ref.Adapt(ref.AdaptArgs{
			X: x[i*in : (i+1)*in], Mid: make([]float32, len(ends)*rank), Y: want, A: a, B: b, Format: f, Slot: slot, Rank: rank, Ends: ends,
			Row: make([]float32, max(in, out)),
		})
		for c := range row {
			if d := math.Abs(float64(row[c] - want[c])); !(d <= 1e-5*math.Sqrt(float64(in*rank)*float64(in))) {
				t.Fatalf("row %d, column %d: %v, want %v", i, c, row[c], want[c])
			}
		}
		if i%9 == 0 {
			if alone := run([]int32{int32(i)}, func(int) int32 { return int32(slot) }); !slices.Equal(alone, row) {
				t.Fatalf("row %d alone has other bits than among %d", i, most)
			}
		}
	}
	if none := run(upTo(most), func(int) int32 { return -1 }); !slices.Equal(none, y0) {
		t.Error("a step without adapters changes rows")
	}
}
