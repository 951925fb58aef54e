package ref

import "vapp.dev/kernels"

// Grid is the order of an item's patches: row by row of Wide columns or, with Square > 0, by squares of
// that many columns and rows.
type Grid struct{ Wide, Square int }

// Place returns the column and row of patch t.
func (g Grid) Place(t int) (across, down int) {
	if g.Square == 0 {
		return t % g.Wide, t / g.Wide
	}
	n, i, squares := t/(g.Square*g.Square), t%(g.Square*g.Square), g.Wide/g.Square
	return n%squares*g.Square + i%g.Square, n/squares*g.Square + i/g.Square
}

// AvgPool sets row r of y [_, cols] to the mean of square r of size × size patches of x [T,
// cols], times scale. Sums are float64, in the order of a square's rows; squares are counted
// row by row.
func AvgPool(x []float32, across, down []int32, cols, size, r int, scale float32, y []float32) {
	wide := 0
	for _, a := range across {
		wide = max(wide, int(a)+1)
	}
	wide /= size
	at := make([]int, size*size)
	for i := range at {
		at[i] = -1
	}
	for t := range across {
		if a, d := int(across[t]), int(down[t]); a/size == r%wide && d/size == r/wide {
			at[d%size*size+a%size] = t
		}
	}
	for c := range cols {
		sum := 0.0
		for _, t := range at {
			if t >= 0 {
				sum += float64(x[t*cols+c])
			}
		}
		y[r*cols+c] = float32(sum / float64(size*size) * float64(scale))
	}
}

// Standardize sets x to (x − mean) · scale for one row.
func Standardize(x, mean, scale []float32) {
	for i := range x {
		x[i] = (x[i] - mean[i]) * scale[i]
	}
}

// Resample adds to x [cols] a position embedding from a table [side·side, cols], stored as f.
// The table is stretched over a grid of wide × high, corner to corner, and interpolated in
// float64 between the four entries nearest to (across, down) (transformers: Qwen3-VL's
// fast_pos_embed_interpolate).
func Resample(f kernels.Format, table []byte, side, across, down, wide, high int, x []float32) {
	between := func(at, n int) (lo, hi int, share float64) {
		if n < 2 {
			return 0, min(1, side-1), 0
		}
		lo = at * (side - 1) / (n - 1)
		return lo, min(lo+1, side-1), float64(at*(side-1)%(n-1)) / float64(n-1)
	}
	x0, x1, sx := between(across, wide)
	y0, y1, sy := between(down, high)
	sum, row := make([]float64, len(x)), make([]float32, len(x))
	for _, corner := range []struct {
		at    int
		share float64
	}{{y0*side + x0, (1 - sy) * (1 - sx)}, {y0*side + x1, (1 - sy) * sx}, {y1*side + x0, sy * (1 - sx)}, {y1*side + x1, sy * sx}} {
		Embed(f, table, int32(corner.at), 1, row)
		for i, v := range row {
			sum[i] += corner.share * float64(v)
		}
	}
	for i, v := range sum {
		x[i] = float32(float64(x[i]) + v)
	}
}
