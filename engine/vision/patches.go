package vision

import "vapp.dev/engine/vision/rgb"

// writer puts the rows of resized frames into patches.
type writer struct {
	Layout
	grid   Grid
	pixels []byte
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

// write sets dst to the patches of frames, resized to g. The rows of a frame are put in their place
// as they are resampled.
func (l Layout) write(dst *Patches, frames []*rgb.Image, g Grid, by resampling, colours *[256]float32) {
	n := g.Across * g.Down
	dst.Pixels, dst.Colours = grow(dst.Pixels, n*l.Cols()), colours
	dst.Across, dst.Down = grow(dst.Across, n), grow(dst.Down, n)
	for y := range g.Down {
		for x := range g.Across {
			i := l.index(x, y, g.Across)
			dst.Across[i], dst.Down[i] = int32(x), int32(y)
		}
	}
	w := &writer{Layout: l, grid: g, pixels: dst.Pixels}
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
		copy(w.pixels[at:at+size], row[size*x:])
	}
}

// apart writes row y of a frame to patches that are ordered by channel, frame, row, column, for
// frames from to end.
func (w *writer) apart(y int, row []byte, from, end int) {
	n, square := w.Patch, w.Patch*w.Patch
	for x := range w.grid.Across {
		at := w.index(x, y/n, w.grid.Across)*w.Cols() + y%n*n + from*square
		separate(w.pixels[at:at+n], w.pixels[at+w.Frames*square:][:n], w.pixels[at+2*w.Frames*square:][:n], row[3*n*x:3*n*(x+1)])
		for f := 1; f < end-from; f++ {
			for c := range 3 {
				first := at + c*w.Frames*square
				copy(w.pixels[first+f*square:], w.pixels[first:first+n])
			}
		}
	}
}

// separate writes the colours of pixels to r, g and b, which have a byte for each.
func separate(r, g, b, pixels []byte) {
	g, b = g[:len(r)], b[:len(r)]
	for i := range r {
		p := (*[3]byte)(pixels[3*i:])
		r[i], g[i], b[i] = p[0], p[1], p[2]
	}
}
