package vision

import "vapp.dev/engine/vision/rgb"

// writer puts the rows of resized frames into patches.
type writer struct {
	Layout
	colours *[256]float32
	grid    Grid
	pixels  []float32
}

// colours returns the numbers of bytes: times factor in float64, then rounded, as rescale of
// transformers does.
func colours(factor float64) *[256]float32 {
	var out [256]float32
	for i := range out {
		out[i] = float32(float64(i) * factor)
	}
	return &out
}

// grow returns s with n elements, in its own memory where that is enough.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// write sets dst to the patches of frames, resized to g. The rows of a frame are rescaled and put
// in their place as they are resampled.
func (l Layout) write(dst *Patches, frames []*rgb.Image, g Grid, by resampling, colours *[256]float32) {
	n := g.Across * g.Down
	dst.Pixels = grow(dst.Pixels, n*l.Cols())
	dst.Across, dst.Down = grow(dst.Across, n), grow(dst.Down, n)
	for y := range g.Down {
		for x := range g.Across {
			i := l.index(x, y, g.Across)
			dst.Across[i], dst.Down[i] = int32(x), int32(y)
		}
	}
	w := &writer{Layout: l, colours: colours, grid: g, pixels: dst.Pixels}
	if l.Frames == 0 {
		resample(frames[0], g.Width, g.Height, by, w.together)
		return
	}
	for i, f := range frames {
		end := i + 1
		if end == len(frames) {
			end = l.Frames // the last frame is repeated
		}
		resample(f, g.Width, g.Height, by, func(y int, row []byte) { w.apart(y, row, i, end) })
	}
}

// index returns the index of the patch in column x and row y of a grid.
func (l Layout) index(x, y, across int) int {
	s := max(l.Square, 1)
	return y/s*s*across + x/s*s*s + y%s*s + x%s
}

// together writes row y of an image to patches that are ordered by row, column, channel.
func (w *writer) together(y int, row []byte) {
	size := 3 * w.Patch
	for x := range w.grid.Across {
		at := w.index(x, y/w.Patch, w.grid.Across)*w.Cols() + y%w.Patch*size
		out := w.pixels[at : at+size]
		for i, b := range row[size*x : size*x+size] {
			out[i] = w.colours[b]
		}
	}
}

// apart writes row y of a frame to patches that are ordered by channel, frame, row, column, for
// frames from to end.
func (w *writer) apart(y int, row []byte, from, end int) {
	square := w.Patch * w.Patch
	for x := range w.grid.Across {
		at := w.index(x, y/w.Patch, w.grid.Across)*w.Cols() + y%w.Patch*w.Patch
		in := row[3*w.Patch*x : 3*w.Patch*(x+1)]
		for c := range 3 {
			first := at + (c*w.Frames+from)*square
			out := w.pixels[first : first+w.Patch]
			for i := range out {
				out[i] = w.colours[in[3*i+c]]
			}
			for f := 1; f < end-from; f++ {
				copy(w.pixels[first+f*square:], out)
			}
		}
	}
}
