package media

import (
	"time"

	"vapp.dev/engine/vision/rgb"
)

// canvas is what the frames of a GIF are drawn on, as Pillow composes them.
type canvas struct {
	width, height int
	pix           []byte // four bytes a pixel: red, green, blue, alpha
	alpha         bool   // the first frame had a transparent index: Pillow's mode RGBA, else RGB
	// dispose restores the canvas before the next frame; nil: nothing to restore.
	dispose func()
}

// decodeGIF returns the frames with those indexes, which rise.
func decodeGIF(data []byte, picks []int) ([]Frame, error) {
	g, err := readGIF(data)
	if err != nil {
		return nil, err
	}
	var (
		out   []Frame
		start time.Duration
		grey  = g.frames[0].colors == nil
	)
	c := &canvas{width: g.Width, height: g.Height, alpha: g.frames[0].transparent >= 0, pix: make([]byte, 4*g.Width*g.Height)}
	c.fillFirst(&g.frames[0])
	for i := range g.frames[:picks[len(picks)-1]+1] {
		f := &g.frames[i]
		if f.left+f.width > g.Width || f.top+f.height > g.Height {
			return nil, refuse(Unsupported, GIF, "its frame %d is outside of the screen of %d × %d pixels", i, g.Width, g.Height)
		}
		if i > 0 && grey && (f.colors != nil || g.frames[0].transparent >= 0) {
			return nil, refuse(Unsupported, GIF, "its first frame has greys and its frame %d colors or transparency", i)
		}
		if err := c.draw(&g, i); err != nil {
			return nil, err
		}
		if picks[len(out)] == i {
			out = append(out, Frame{Image: c.image(), Start: start})
		}
		start += f.delay
	}
	return out, nil
}

// colorsOf returns the palette of a frame; what the palette lacks is black, and without a palette
// indexes are greys.
func colorsOf(f *gifFrame) *palette {
	if f.colors != nil {
		return readPalette(f.colors, 3, 0, 1, 2)
	}
	p := new(palette)
	for i := range p {
		p[i] = [3]byte{byte(i), byte(i), byte(i)}
	}
	return p
}

// fillFirst fills the canvas below the first frame: with its transparent index, else with index 0.
func (c *canvas) fillFirst(f *gifFrame) {
	index, alpha := 0, byte(255)
	if f.transparent >= 0 {
		index, alpha = f.transparent, 0
	}
	c.fill(0, 0, c.width, c.height, colorsOf(f)[index], alpha)
}

func (c *canvas) fill(left, top, width, height int, color [3]byte, alpha byte) {
	for y := top; y < top+height; y++ {
		row := c.pix[4*(y*c.width+left):][:4*width]
		for ; len(row) > 0; row = row[4:] {
			row[0], row[1], row[2], row[3] = color[0], color[1], color[2], alpha
		}
	}
}

// draw disposes of the frame before, and draws frame i.
func (c *canvas) draw(g *gifFile, i int) error {
	f := &g.frames[i]
	if c.dispose != nil {
		c.dispose()
	}
	c.prepareDisposal(g, f, i)
	indexes, err := f.pixels()
	if err != nil {
		return err
	}
	colors := colorsOf(f)
	for y := range f.height {
		row := c.pix[4*((f.top+y)*c.width+f.left):]
		for x, v := range indexes[y*f.width : (y+1)*f.width] {
			px := row[4*x : 4*x+4]
			switch {
			case int(v) != f.transparent:
				copy(px, colors[v][:])
				px[3] = 255
			case i == 0:
				copy(px, colors[v][:])
				px[3] = 0
			}
		}
	}
	return nil
}

// prepareDisposal sets what restores the canvas after frame f, before f is drawn.
func (c *canvas) prepareDisposal(g *gifFile, f *gifFrame, i int) {
	const background, previous = 2, 3
	c.dispose = nil
	index, alpha := f.transparent, byte(0)
	switch {
	case f.disposal < background:
		return
	case f.disposal > background && i > 0:
		c.dispose = c.restore(f)
		return
	case f.disposal > background && index < 0:
		return // Pillow has nothing to restore before the first frame
	case index < 0:
		index, alpha = g.background, 255
	}
	colors := colorsOf(f)
	if i > 0 && 3*index+3 > len(f.colors) && f.colors != nil {
		index = 0
	}
	color := colors[index]
	c.dispose = func() { c.fill(f.left, f.top, f.width, f.height, color, alpha) }
}

// restore returns a function that puts the pixels below f back.
func (c *canvas) restore(f *gifFrame) func() {
	kept := make([]byte, 0, 4*f.width*f.height)
	for y := range f.height {
		kept = append(kept, c.pix[4*((f.top+y)*c.width+f.left):][:4*f.width]...)
	}
	return func() {
		for y := range f.height {
			copy(c.pix[4*((f.top+y)*c.width+f.left):], kept[4*y*f.width:4*(y+1)*f.width])
		}
	}
}

// image returns the canvas, over white if it has transparency.
func (c *canvas) image() *rgb.Image {
	m := rgb.New(c.width, c.height)
	if c.alpha {
		translucent(m.Pix, c.pix, 4, 1)
	} else {
		opaque(m.Pix, c.pix, 4, 1)
	}
	return m
}
