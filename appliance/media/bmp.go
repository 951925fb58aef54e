package media

import (
	"encoding/binary"

	"vapp.dev/engine/vision/rgb"
)

// bmpFile is a bitmap as its header describes it.
type bmpFile struct {
	Info
	bits   int
	topUp  bool // the first stored row is the lowest
	rle    int  // bits of an index in run lengths; 0: rows
	colors *palette
	layout bmpLayout
	data   []byte
}

// bmpLayout is how a pixel of 16 bits and more has its colors.
type bmpLayout struct {
	bytes            int
	red, green, blue int // offsets of bytes; alpha −1: none
	alpha            int
	packed           int // 555 or 565: bits of the colors in 16
}

// bmpMasks are the layouts that Pillow reads, by their masks of red, green, blue and alpha.
var bmpMasks = map[int]map[[4]uint32]bmpLayout{
	32: {
		{0xff0000, 0xff00, 0xff, 0}:          {4, 2, 1, 0, -1, 0},
		{0xff000000, 0xff0000, 0xff00, 0}:    {4, 3, 2, 1, -1, 0},
		{0xff000000, 0xff00, 0xff, 0}:        {4, 3, 1, 0, -1, 0},
		{0xff000000, 0xff0000, 0xff00, 0xff}: {4, 3, 2, 1, 0, 0},
		{0xff, 0xff00, 0xff0000, 0xff000000}: {4, 0, 1, 2, 3, 0},
		{0xff0000, 0xff00, 0xff, 0xff000000}: {4, 2, 1, 0, 3, 0},
		{0xff000000, 0xff00, 0xff, 0xff0000}: {4, 3, 1, 0, 2, 0},
		{0, 0, 0, 0}:                         {4, 2, 1, 0, 3, 0},
	},
	24: {{0xff0000, 0xff00, 0xff, 0}: {3, 2, 1, 0, -1, 0}},
	16: {{0xf800, 0x7e0, 0x1f, 0}: {bytes: 2, packed: 565}, {0x7c00, 0x3e0, 0x1f, 0}: {bytes: 2, packed: 555}},
}

// plainLayouts are those without masks.
var plainLayouts = map[int]bmpLayout{32: {4, 2, 1, 0, -1, 0}, 24: {3, 2, 1, 0, -1, 0}, 16: {bytes: 2, packed: 555}}

const (
	bmpRaw    = 0
	bmpRLE8   = 1
	bmpRLE4   = 2
	bmpFields = 3
	bmpHeader = 14 // bytes before the header that has the size
)

func readBMP(data []byte) (p bmpFile, err error) {
	p.Info = Info{Format: BMP, Frames: 1, Orientation: 1}
	if len(data) < bmpHeader+4 {
		return p, endsEarly(BMP)
	}
	le := binary.LittleEndian
	offset, size := int64(le.Uint32(data[10:])), int64(le.Uint32(data[bmpHeader:]))
	if int64(len(data)) < bmpHeader+size {
		return p, endsEarly(BMP)
	}
	h := data[bmpHeader : bmpHeader+size]
	compression, colors, entry := uint32(bmpRaw), int64(0), int64(4)
	p.topUp = true
	switch size {
	case 12:
		p.Width, p.Height, p.bits, entry = int(le.Uint16(h[4:])), int(le.Uint16(h[6:])), int(le.Uint16(h[10:])), 3
	case 40, 52, 56, 64, 108, 124:
		p.topUp = h[11] != 0xff
		p.Width, p.Height = int(le.Uint32(h[4:])), int(le.Uint32(h[8:]))
		if !p.topUp {
			p.Height = 1<<32 - p.Height
		}
		p.bits, compression, colors = int(le.Uint16(h[14:])), le.Uint32(h[16:]), int64(le.Uint32(h[32:]))
	default:
		return p, refuse(Unsupported, BMP, "its header has %d bytes", size)
	}
	end := bmpHeader + size
	switch p.bits {
	case 1, 4, 8:
		if colors == 0 {
			colors = 1 << p.bits
		}
		err = p.indexed(data, end, entry, colors, compression)
		if end += entry * colors; offset < end && offset == bmpHeader+size {
			offset = end // some writers leave out the palette here
		}
	case 16, 24, 32:
		err = p.direct(h, data[end:], compression)
		if compression == bmpFields && size == 40 {
			end += 12
		}
	default:
		err = refuse(Unsupported, BMP, "it has %d bits a pixel", p.bits)
	}
	if err != nil {
		return p, err
	}
	if offset == 0 {
		offset = end
	}
	if offset > int64(len(data)) {
		return p, endsEarly(BMP)
	}
	p.data = data[offset:]
	return p, nil
}

// indexed reads the palette at position at.
func (p *bmpFile) indexed(data []byte, at, entry, colors int64, compression uint32) error {
	switch compression {
	case bmpRaw:
	case bmpRLE8:
		p.rle = 8
	case bmpRLE4:
		p.rle = 4
	default:
		return refuse(Unsupported, BMP, "compression %d of %d bits is not read", compression, p.bits)
	}
	if colors > 65536 {
		return refuse(Damaged, BMP, "its palette has %d colors", colors)
	}
	b := data[at:min(at+entry*colors, int64(len(data)))]
	p.colors = readPalette(b, int(entry), 2, 1, 0)
	// Pillow leaves out a palette of greys: then it reads 8 bits of every index, or 1.
	grey := int64(len(b)) == entry*colors
	for i := range min(colors, 256) {
		v := byte(i)
		if colors == 2 {
			v = byte(255 * i)
		}
		grey = grey && p.colors[i] == [3]byte{v, v, v}
	}
	bits := 8
	if colors <= 2 {
		bits = 1
	}
	if grey && p.rle == 0 && p.bits != bits {
		return refuse(Unsupported, BMP, "%d greys in %d bits a pixel are not read", colors, p.bits)
	}
	return nil
}

// direct reads the layout of pixels that have their colors: its masks are in the header, or behind a
// header of 40 bytes.
func (p *bmpFile) direct(h, behind []byte, compression uint32) error {
	p.layout = plainLayouts[p.bits]
	if compression == bmpRaw {
		return nil
	}
	if compression != bmpFields {
		return refuse(Unsupported, BMP, "compression %d of %d bits is not read", compression, p.bits)
	}
	var masks [4]uint32
	from := behind
	if len(h) > 40 {
		from = h[40:]
	}
	n := 3
	if len(h) >= 56 && p.bits == 32 {
		n = 4
	}
	if len(from) < 4*n {
		return endsEarly(BMP)
	}
	for i := range n {
		masks[i] = binary.LittleEndian.Uint32(from[4*i:])
	}
	layout, ok := bmpMasks[p.bits][masks]
	if !ok {
		return refuse(Unsupported, BMP, "its masks of %d bits are not read: %x", p.bits, masks)
	}
	p.layout = layout
	return nil
}

func decodeBMP(data []byte) (*rgb.Image, error) {
	p, err := readBMP(data)
	if err != nil {
		return nil, err
	}
	m := rgb.New(p.Width, p.Height)
	place := func(y int) []byte {
		if p.topUp {
			y = m.Height - 1 - y
		}
		return m.Row(y)
	}
	if p.rle > 0 {
		indexes := p.runs()
		if len(indexes) < p.Width*p.Height {
			return nil, refuse(Truncated, BMP, "its runs end before its last row")
		}
		for y := range m.Height {
			p.colors.paint(place(y), indexes[y*p.Width:(y+1)*p.Width])
		}
		return m, nil
	}
	row, stride := (p.Width*p.bits+7)/8, (p.Width*p.bits+31)/32*4
	for y := range m.Height {
		if len(p.data) < y*stride+row {
			return nil, refuse(Truncated, BMP, "the file ends before its last row")
		}
		p.row(place(y), p.data[y*stride:y*stride+row])
	}
	return m, nil
}

func (p *bmpFile) row(to, from []byte) {
	l := p.layout
	switch {
	case p.colors != nil:
		for x := range p.Width {
			bit := x * p.bits
			v := from[bit/8] >> (8 - p.bits - bit%8) & (1<<p.bits - 1)
			copy(to[3*x:3*x+3], p.colors[v][:])
		}
	case l.packed != 0:
		for x := range p.Width {
			v := uint32(binary.LittleEndian.Uint16(from[2*x:]))
			red, green, most := v>>10&31, v>>5&31, uint32(31)
			if l.packed == 565 {
				red, green, most = v>>11&31, v>>5&63, 63
			}
			to[3*x], to[3*x+1], to[3*x+2] = byte(red*255/31), byte(green*255/most), byte((v&31)*255/31)
		}
	default:
		for x := range p.Width {
			px, alpha := from[l.bytes*x:], byte(255)
			if l.alpha >= 0 {
				alpha = px[l.alpha]
			}
			to[3*x], to[3*x+1], to[3*x+2] = overWhite(px[l.red], alpha), overWhite(px[l.green], alpha), overWhite(px[l.blue], alpha)
		}
	}
}
