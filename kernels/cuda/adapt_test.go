package cuda_test

import (
	"fmt"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

// TestAdapt compares adapters of several slots with kernels/ref: joined modules, whole and broken groups of four
// inputs, rows by token and by sampled row. Rows without an adapter keep their bits, and the kernels
// for few and for many rows give the same bits.
func TestAdapt(t *testing.T) {
	r := newRig(t)
	for i, c := range []struct {
		in, rank int
		ends     []int
	}{{136, 8, []int{40, 72, 300}}, {37, 3, []int{33}}, {6, 1, []int{5, 9}}} {
		for _, f := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
			const slots, rows = 3, 11
			n, out := len(c.ends), c.ends[len(c.ends)-1]
			x, y0 := r.floats(rows*c.in, 1), r.floats(rows*out, 1)
			a, _ := stored(f, r.floats(slots*n*c.rank*c.in, 0.2))
			b, _ := stored(f, r.floats(slots*c.rank*out, 0.5))
			slot := []int32{1, 1, 0, 1, 2, 2, -1, 0, 0, 0, -1}
			var tokens []int32
			of := func(row int) int { return int(slot[row]) }
			if i == 1 {
				tokens = []int32{10, 6, 2, 1, 5, 4, 3, 0, 9, 8, 7}
				of = func(row int) int { return int(slot[tokens[row]]) }
			}
			want := append([]float32(nil), y0...)
			for row := range rows {
				if of(row) < 0 {
					continue
				}
				ref.Adapt(ref.AdaptArgs{
					X: x[row*c.in : (row+1)*c.in], Mid: make([]float32, n*c.rank), Y: want[row*out : (row+1)*out], A: a, B: b, Format: f,
					Slot: of(row), Rank: c.rank, Ends: c.ends, Row: make([]float32, max(c.in, out)),
				})
			}
			var few []float32
			for _, many := range []bool{false, true} {
				got := r.eachSchedule(func() []float32 {
					args := cuda.AdaptArgs{
						X: up(r, x), Mid: alloc[float32](r, rows*n*c.rank), Y: up(r, y0), A: up(r, a), B: up(r, b), Slots: up(r, slot), Tokens: up(r, tokens),
						Rows: rows, In: int32(c.in), Out: int32(out), Rank: int32(c.rank), Modules: int32(n),
					}
					for m, end := range c.ends {
						args.Ends[m] = int32(end)
					}
					k := cuda.ChooseAdapt(f, many)
					warps, blocks := k.DownWarps(n * c.rank)
					launch(r, k.Down, cudatest.Grid{Blocks: [3]int{ceil(rows, k.DownRows), blocks, 1}, Threads: [3]int{32 * warps, 1, 1}}, &args)
					launch(r, k.Up, cudatest.Grid{Blocks: [3]int{ceil(rows, k.UpRows), ceil(out, 64), 1}, Threads: [3]int{64, 1, 1}}, &args)
					return down[float32](r, args.Y, rows*out)
				})
				what := fmt.Sprintf("%v, many %v, %d inputs", f, many, c.in)
				r.near(what, got, want, 1e-6)
				for row := range rows {
					if of(row) < 0 {
						r.near(what+", without", got[row*out:(row+1)*out], y0[row*out:(row+1)*out], 0)
					}
				}
				if few == nil {
					few = got
				}
				r.near(what+", as few", got, few, 0)
			}
		}
	}
}
