package cuda_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

// places returns the positions of n patches of an image.
func places(g ref.Grid, n int) (across, below []int32) {
	for t := range n {
		a, d := g.Place(t)
		across, below = append(across, int32(a)), append(below, int32(d))
	}
	return across, below
}

func TestPatches(t *testing.T) {
	r := newRig(t)
	const cols = 41
	for n, g := range map[int]ref.Grid{6: {Wide: 3}, 16: {Wide: 4, Square: 2}} {
		colours, bytes, want := r.floats(256, 1), make([]byte, n*cols), make([]float32, n*cols)
		for i := range bytes {
			bytes[i] = byte(i * 89)
			want[i] = colours[bytes[i]]*2 - 1
		}
		item := make([]byte, 0, 4*256+n*cols)
		for _, c := range colours {
			item = binary.LittleEndian.AppendUint32(item, math.Float32bits(c))
		}
		across, below := places(g, n)
		a := cuda.PatchesArgs{
			Item: up(r, append(item, bytes...)), ItemAcross: up(r, across), ItemDown: up(r, below), Pixels: alloc[float32](r, n*cols), Across: alloc[int32](r, n), Down: alloc[int32](r, n),
			Scale: 2, Shift: -1, Cols: cols,
		}
		launch(r, "patches", cudatest.Line(n, 32), &a)
		if got := fmt.Sprint(down[int32](r, a.Across, n), down[int32](r, a.Down, n)); got != fmt.Sprint(across, below) {
			t.Errorf("%d patches of %+v: places %s, want %v %v", n, g, got, across, below)
		}
		r.near("pixels", down[float32](r, a.Pixels, n*cols), want, 0)
	}
}

// TestPool has grids in both orders, and one of a single square.
func TestPool(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct{ wide, high, square, size int }{{6, 4, 0, 2}, {9, 6, 3, 3}, {2, 2, 0, 2}, {3, 1, 0, 1}} {
		const cols = 37
		n := c.wide * c.high
		across, below := places(ref.Grid{Wide: c.wide, Square: c.square}, n)
		x, rows := r.floats(n*cols, 1), n/(c.size*c.size)
		want := make([]float32, rows*cols)
		for i := range rows {
			ref.AvgPool(x, across, below, cols, c.size, i, 1.5, want)
		}
		got := r.eachSchedule(func() []float32 {
			a := cuda.PoolArgs{X: up(r, x), Across: up(r, across), Down: up(r, below), Y: alloc[float32](r, rows*cols), Tokens: int32(n), Cols: cols, Size: int32(c.size), Scale: 1.5}
			launch(r, "pool", cudatest.Line(rows, 64), &a)
			return down[float32](r, a.Y, rows*cols)
		})
		r.near(fmt.Sprint(c), got, want, 1e-6)
	}
}

func TestResample(t *testing.T) {
	r := newRig(t)
	for _, f := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
		for _, c := range []struct{ wide, high, side int }{{5, 3, 4}, {1, 7, 4}, {4, 4, 4}, {3, 2, 1}, {9, 2, 3}} {
			const cols = 35
			n := c.wide * c.high
			across, below := places(ref.Grid{Wide: c.wide}, n)
			table, _ := stored(f, r.floats(c.side*c.side*cols, 1))
			x := r.floats(n*cols, 1)
			a := cuda.ResampleArgs{X: up(r, x), Table: up(r, table), Across: up(r, across), Down: up(r, below), Tokens: int32(n), Cols: cols, Side: int32(c.side)}
			launch(r, "resample_"+f.String(), cudatest.Line(n, 64), &a)
			for i := range n {
				ref.Resample(f, table, c.side, int(across[i]), int(below[i]), c.wide, c.high, x[i*cols:(i+1)*cols])
			}
			r.near(fmt.Sprint(f, c), down[float32](r, a.X, n*cols), x, 1e-6)
		}
	}
}

func TestMerge(t *testing.T) {
	r := newRig(t)
	const cols = 35
	x, e, rows := r.floats(4*cols, 1), r.floats(3*cols, 1), []int32{-1, 2, 0, -1}
	a := cuda.MergeArgs{X: up(r, x), Encoded: up(r, e), Rows: up(r, rows), Cols: cols}
	launch(r, "merge", cudatest.Line(len(rows), 32), &a)
	s := cuda.StandardizeArgs{X: a.X, Mean: up(r, e[:cols]), Scale: up(r, e[cols:2*cols]), Cols: cols}
	for i, from := range rows {
		if from >= 0 {
			copy(x[i*cols:(i+1)*cols], e[from*cols:])
		}
	}
	r.near("merged", down[float32](r, a.X, len(x)), x, 0)
	kept := cuda.StoreEncodedArgs{X: a.X, Encoded: up(r, make([]float32, 7*cols)), At: up(r, []int32{2}), Cols: cols}
	launch(r, "store_encoded", cudatest.Line(len(rows), 32), &kept)
	if all := down[float32](r, kept.Encoded, 7*cols); !slices.Equal(all[2*cols:6*cols], x) || all[2*cols-1] != 0 || all[6*cols] != 0 {
		t.Errorf("rows at 2 of the cache: %v, want %v", all, x)
	}
	launch(r, "standardize", cudatest.Line(len(rows), 32), &s)
	for i := range rows {
		ref.Standardize(x[i*cols:(i+1)*cols], e[:cols], e[cols:2*cols])
	}
	r.near("standardized", down[float32](r, a.X, len(x)), x, 1e-7)
}
