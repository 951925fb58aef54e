package media

import (
	"compress/lzw"
	"encoding/binary"
	"io"
	"time"
)

// gifFrame is an image of a GIF.
type gifFrame struct {
	left, top, width, height int
	colors                   []byte // three bytes each; nil: greys, as Pillow reads a palette of them
	transparent              int    // index; −1: none
	disposal                 byte   // the last one that a frame up to this one set, as in Pillow
	delay                    time.Duration
	interlaced               bool
	bits                     int    // of an index
	data                     []byte // from the first block of its pixels
}

type gifFile struct {
	Info
	background int
	frames     []gifFrame
}

// readGIF reads the blocks of a GIF up to its trailer, or to where the data ends.
func readGIF(data []byte) (g gifFile, err error) {
	g.Info = Info{Format: GIF, Orientation: 1}
	if len(data) < 13 {
		return g, endsEarly(GIF)
	}
	g.Width, g.Height = int(binary.LittleEndian.Uint16(data[6:])), int(binary.LittleEndian.Uint16(data[8:]))
	r := &gifReader{data: data, at: 13}
	var global []byte
	if data[10]&0x80 != 0 {
		g.background = int(data[11])
		global = r.colors(data[10])
	}
	next := gifFrame{transparent: -1}
	for {
		switch c := r.take(1); {
		case c == nil || c[0] == ';':
			g.Frames = len(g.frames)
			if g.Frames == 0 {
				return g, endsEarly(GIF)
			}
			return g, nil
		case c[0] == '!':
			r.extension(&next)
		case c[0] == ',':
			if !r.image(&next, global) {
				continue // the file ends in a frame's header
			}
			if len(g.frames) == 0 {
				// Pillow enlarges the screen for its first frame.
				g.Width, g.Height = max(g.Width, next.left+next.width), max(g.Height, next.top+next.height)
			}
			if g.frames = append(g.frames, next); len(g.frames) > maxFrames {
				return g, refuse(TooLarge, GIF, "it has more than %d frames", maxFrames)
			}
			g.Duration += shown(next.delay)
			next = gifFrame{transparent: -1, disposal: next.disposal}
		}
	}
}

// gifReader reads the blocks of a GIF.
type gifReader struct {
	data []byte
	at   int
}

// take returns the next n bytes, nil at the end.
func (r *gifReader) take(n int) []byte {
	if len(r.data)-r.at < n {
		r.at = len(r.data)
		return nil
	}
	r.at += n
	return r.data[r.at-n : r.at]
}

// block returns the bytes of the next block; an empty one ends a sequence.
func (r *gifReader) block() []byte {
	if n := r.take(1); n != nil {
		return r.take(int(n[0]))
	}
	return nil
}

func (r *gifReader) skipBlocks() {
	for len(r.block()) > 0 {
	}
}

// colors returns the palette that flags announce, nil if it is the greys of its indexes.
func (r *gifReader) colors(flags byte) []byte {
	p := r.take(3 << (flags&7 + 1))
	for i, v := range p {
		if int(v) != i/3 {
			return p
		}
	}
	return nil
}

func (r *gifReader) extension(f *gifFrame) {
	const graphicControl = 0xf9
	label := r.take(1)
	b := r.block()
	if label != nil && label[0] == graphicControl && len(b) >= 4 {
		if b[0]&1 != 0 {
			f.transparent = int(b[3])
		}
		if d := b[0] >> 2 & 7; d != 0 {
			f.disposal = d
		}
		f.delay = time.Duration(binary.LittleEndian.Uint16(b[1:])) * 10 * time.Millisecond
	}
	if len(b) > 0 {
		r.skipBlocks()
	}
}

// image reads the header of a frame and skips its pixels. It returns false if the data ends.
func (r *gifReader) image(f *gifFrame, global []byte) bool {
	h := r.take(9)
	if h == nil {
		return false
	}
	le := binary.LittleEndian
	f.left, f.top = int(le.Uint16(h)), int(le.Uint16(h[2:]))
	f.width, f.height = int(le.Uint16(h[4:])), int(le.Uint16(h[6:]))
	f.interlaced = h[8]&0x40 != 0
	f.colors = global
	if h[8]&0x80 != 0 {
		f.colors = r.colors(h[8])
	}
	bits := r.take(1)
	if bits == nil {
		return false
	}
	f.bits, f.data = int(bits[0]), r.data[r.at:]
	r.skipBlocks()
	return true
}

// blocks is the reader of a sequence of blocks.
type blocks struct {
	r    gifReader
	rest []byte
}

func (b *blocks) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		if b.rest = b.r.block(); len(b.rest) == 0 {
			return 0, io.EOF
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *blocks) ReadByte() (byte, error) {
	var one [1]byte
	if _, err := b.Read(one[:]); err != nil {
		return 0, err
	}
	return one[0], nil
}

// pixels returns the indexes of a frame, row after row.
func (f *gifFrame) pixels() ([]byte, error) {
	out := make([]byte, f.width*f.height)
	if len(out) == 0 {
		return out, nil
	}
	if f.bits < 2 || f.bits > 8 {
		return nil, refuse(Unsupported, GIF, "its indexes have %d bits; 2 to 8 are read", f.bits)
	}
	z := lzw.NewReader(&blocks{r: gifReader{data: f.data}}, lzw.LSB, f.bits)
	defer z.Close()
	read := func(y int) error {
		_, err := io.ReadFull(z, out[y*f.width:(y+1)*f.width])
		return err
	}
	var err error
	if f.interlaced {
		for _, pass := range [...]struct{ from, step int }{{0, 8}, {4, 8}, {2, 4}, {1, 2}} {
			for y := pass.from; y < f.height && err == nil; y += pass.step {
				err = read(y)
			}
		}
	} else {
		for y := 0; y < f.height && err == nil; y++ {
			err = read(y)
		}
	}
	if err == io.ErrUnexpectedEOF || err == io.EOF {
		return nil, refuse(Truncated, GIF, "a frame ends before its last row")
	}
	if err != nil {
		return nil, refuse(Damaged, GIF, "its pixels are not valid: %v", err)
	}
	return out, nil
}
