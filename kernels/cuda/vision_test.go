package cuda_test

import (
	"fmt"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

// places returns the positions of n patches of an image.
func places(m ref.Image, n int) (across, below []int32) {
	for t := range n {
		a, d := m.Place(t)
		across, below = append(across, int32(a)), append(below, int32(d))
	}
	return across, below
}

func TestPatches(t *testing.T) {
	r := newRig(t)
	for _, m := range []ref.Image{
		{Frames: 1, Height: 8, Width: 12, Patch: 4},
		{Frames: 3, Height: 8, Width: 8, Patch: 2, PatchFrames: 2, Square: 2},
		{Frames: 1, Height: 4, Width: 8, Patch: 2, PatchFrames: 2, Square: 2}, // an image where a patch has two frames
		{Frames: 1, Height: 3, Width: 3, Patch: 3},
	} {
		m.Pixels = make([]byte, 3*m.Frames*m.Height*m.Width)
		for i := range m.Pixels {
			m.Pixels[i] = byte(r.rnd.Uint32())
		}
		n, cols := m.Height*m.Width/(m.Patch*m.Patch), m.Cols()
		want := make([]float32, n*cols)
		for i := range n {
			m.Cut(i, 2, -1, want[i*cols:(i+1)*cols])
		}
		across, below := places(m, n)
		a := cuda.PatchesArgs{
			Image: up(r, m.Pixels), Pixels: alloc[float32](r, n*cols), Across: alloc[int32](r, n), Down: alloc[int32](r, n), Frames: int32(m.Frames),
			Height: int32(m.Height), Width: int32(m.Width), Patch: int32(m.Patch), PatchFrames: int32(m.PatchFrames), Square: int32(m.Square), Scale: 2, Shift: -1,
		}
		launch(r, "patches", cudatest.Line(n, 32), &a)
		if got := fmt.Sprint(down[int32](r, a.Across, n), down[int32](r, a.Down, n)); got != fmt.Sprint(across, below) {
			t.Errorf("%d × %d: places %s, want %v %v", m.Width, m.Height, got, across, below)
		}
		r.near("pixels", down[float32](r, a.Pixels, n*cols), want, 1e-7)
	}
}

// TestPool has grids in both orders, and one of a single square.
func TestPool(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct{ wide, high, square, size int }{{6, 4, 0, 2}, {9, 6, 3, 3}, {2, 2, 0, 2}, {3, 1, 0, 1}} {
		const cols = 37
		n := c.wide * c.high
		across, below := places(ref.Image{Width: c.wide, Height: c.high, Patch: 1, Square: c.square}, n)
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
			across, below := places(ref.Image{Width: c.wide, Height: c.high, Patch: 1}, n)
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
	launch(r, "standardize", cudatest.Line(len(rows), 32), &s)
	for i := range rows {
		ref.Standardize(x[i*cols:(i+1)*cols], e[:cols], e[cols:2*cols])
	}
	r.near("standardized", down[float32](r, a.X, len(x)), x, 1e-7)
}
