package ref

import "vapp.dev/kernels"

// Image is the input of a vision tower: bytes of colours [Frames, Height, Width, 3], split
// into patches of Patch × Patch pixels.
type Image struct {
	Pixels                []byte
	Frames, Height, Width int
	Patch                 int
	PatchFrames           int // frames of a patch, with colours ordered by channel, frame, row, column; 0: one frame, channels of a pixel together
	Square                int // patches are ordered by squares of this many columns and rows; 0: row by row
}

// Cols returns how many numbers a patch has.
func (m Image) Cols() int { return 3 * max(1, m.PatchFrames) * m.Patch * m.Patch }

// Place returns the column and row of patch t in the grid.
func (m Image) Place(t int) (across, down int) {
	wide := m.Width / m.Patch
	if m.Square == 0 {
		return t % wide, t / wide
	}
	n, i := t/(m.Square*m.Square), t%(m.Square*m.Square)
	return n%(wide/m.Square)*m.Square + i%m.Square, n/(wide/m.Square)*m.Square + i/m.Square
}

// Cut sets y [Cols] to the colours of patch t, 0 to 1, times scale plus shift, in float32. If
// an item has fewer frames than a patch, its last frame is repeated.
func (m Image) Cut(t int, scale, shift float32, y []float32) {
	across, down := m.Place(t)
	for i := range y {
		var row, col, channel, frame int
		if m.PatchFrames == 0 {
			channel, col, row = i%3, i/3%m.Patch, i/3/m.Patch
		} else {
			col, row = i%m.Patch, i/m.Patch%m.Patch
			frame, channel = i/(m.Patch*m.Patch)%m.PatchFrames, i/(m.Patch*m.Patch)/m.PatchFrames
		}
		frame = min(frame, m.Frames-1)
		at := ((frame*m.Height+down*m.Patch+row)*m.Width + across*m.Patch + col) * 3
		y[i] = float32(float32(m.Pixels[at+channel])/255*scale) + shift
	}
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
