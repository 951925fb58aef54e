// Package rgb has the pixels of a decoded image: eight bits of red, green and blue, row after row.
//
// It must not decode, scale or allocate beyond the image that it is asked for: the bounds of a
// size are its caller's. Start reading at Image.
package rgb

// Image holds Width × Height pixels of three bytes: red, green, blue. Pix has
// 3 · Width · Height bytes, without padding between rows.
type Image struct {
	Width, Height int
	Pix           []byte
}

// New returns a black image.
func New(width, height int) *Image {
	return &Image{Width: width, Height: height, Pix: make([]byte, 3*width*height)}
}

// Row returns the bytes of row y.
func (m *Image) Row(y int) []byte { return m.Pix[3*m.Width*y : 3*m.Width*(y+1)] }

// Orientation is a value of the EXIF tag of that name, 1 to 8: how a stored image is turned to be
// looked at. Every other value means 1: as stored.
type Orientation uint8

// Turned returns whether o exchanges width and height.
func (o Orientation) Turned() bool { return o >= 5 && o <= 8 }

// Size returns the size to look at of an image that is stored with width × height pixels.
func (o Orientation) Size(width, height int) (int, int) {
	if o.Turned() {
		return height, width
	}
	return width, height
}

// Upright returns m as it is looked at, as Pillow's ImageOps.exif_transpose does: m itself where
// there is nothing to turn.
func (m *Image) Upright(o Orientation) *Image {
	if o < 2 || o > 8 {
		return m
	}
	w, h := o.Size(m.Width, m.Height)
	out := New(w, h)
	// The pixel (0, 0) of out comes from start; a step right or down in out is a step in m.
	last, bottom := 3*(m.Width-1), 3*m.Width*(m.Height-1)
	const px = 3
	row := 3 * m.Width
	var start, right, down int
	switch o {
	case 2:
		start, right, down = last, -px, row
	case 3:
		start, right, down = bottom+last, -px, -row
	case 4:
		start, right, down = bottom, px, -row
	case 5:
		start, right, down = 0, row, px
	case 6:
		start, right, down = bottom, -row, px
	case 7:
		start, right, down = bottom+last, -row, -px
	case 8:
		start, right, down = last, row, -px
	}
	// Tiles of 64 × 64 pixels keep both sides of a turn in the cache.
	const tile = 64
	for y0 := 0; y0 < h; y0 += tile {
		for x0 := 0; x0 < w; x0 += tile {
			for y := y0; y < min(y0+tile, h); y++ {
				from, to := start+y*down+x0*right, 3*(y*w+x0)
				for x := x0; x < min(x0+tile, w); x++ {
					copy(out.Pix[to:to+3], m.Pix[from:from+3])
					from, to = from+right, to+3
				}
			}
		}
	}
	return out
}
