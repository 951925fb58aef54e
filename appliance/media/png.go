package media

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"image"
	"image/png"
	"io"
	"slices"
	"strings"

	"vapp.dev/engine/vision/rgb"
)

const pngMagic = "\x89PNG\r\n\x1a\n"

// maxText is the most bytes of a compressed text that are read: Pillow's MAX_TEXT_CHUNK.
const maxText = 1 << 20

// maxTexts is the most compressed texts that are read.
const maxTexts = 8

// pngFile has the chunks of a PNG that its pixels depend on.
type pngFile struct {
	Info
	header       []byte // of IHDR
	depth, color byte
	colors       []byte // of PLTE
	transparent  []byte // of tRNS
	data         [][]byte
}

// readPNG reads the chunks. Those before the pixels must have their checksums, as in Pillow. Chunks
// that are of no use here are skipped: nothing of them is decompressed.
func readPNG(data []byte) (p pngFile, err error) {
	p.Info = Info{Format: PNG, Frames: 1}
	var meta metadata
	for at := len(pngMagic); at+8 <= len(data); {
		n, name := int64(binary.BigEndian.Uint32(data[at:])), string(data[at+4:at+8])
		body := data[at+8 : min(int64(at)+8+n, int64(len(data)))]
		whole := int64(len(body)) == n
		if name != "IDAT" && p.data == nil && !checksum(data[at+4:], len(body)) {
			return p, refuse(Damaged, PNG, "its chunk %q has a wrong checksum", name)
		}
		at += 8 + len(body) + 4
		if p.header == nil && (name != "IHDR" || len(body) < 13) {
			return p, refuse(Damaged, PNG, "its first chunk is not IHDR")
		}
		switch name {
		case "IHDR":
			if p.header == nil {
				p.header = body[:13]
				p.Width, p.Height = int(binary.BigEndian.Uint32(body)), int(binary.BigEndian.Uint32(body[4:]))
				p.depth, p.color = body[8], body[9]
			}
		case "PLTE":
			p.colors = body
		case "tRNS":
			p.transparent = body
		case "IDAT":
			p.data = append(p.data, body)
		case "IEND":
			at = len(data)
		case "eXIf":
			if whole {
				meta.exif = body
			}
		case "tEXt", "zTXt", "iTXt":
			meta.pngText(name, body)
		}
	}
	if p.data == nil {
		return p, endsEarly(PNG)
	}
	if p.Width < 0 || p.Height < 0 || p.Width > 1<<31-1 || p.Height > 1<<31-1 {
		return p, refuse(Damaged, PNG, "its size is more than 31 bits")
	}
	p.Orientation = meta.orientation()
	return p, nil
}

// checksum returns whether a chunk of n bytes, from its name on, is there with the right checksum.
func checksum(chunk []byte, n int) bool {
	return len(chunk) >= n+8 && crc32.ChecksumIEEE(chunk[:n+4]) == binary.BigEndian.Uint32(chunk[n+4:])
}

// pngText keeps a text that can have an orientation: ImageMagick's profile of EXIF, and XMP.
func (m *metadata) pngText(chunk string, body []byte) {
	key, text, ok := bytes.Cut(body, []byte{0})
	if !ok {
		return
	}
	compressed := chunk == "zTXt"
	switch {
	case chunk == "zTXt" && len(text) > 0:
		text = text[1:]
	case chunk == "iTXt" && len(text) > 2:
		compressed = text[0] != 0
		parts := bytes.SplitN(text[2:], []byte{0}, 3)
		text = parts[len(parts)-1]
	}
	isProfile, isXMP := string(key) == "Raw profile type exif", string(key) == "XML:com.adobe.xmp"
	if !isProfile && !isXMP {
		return
	}
	if compressed {
		if m.texts++; m.texts > maxTexts {
			return
		}
		z, err := zlib.NewReader(bytes.NewReader(text))
		if err != nil {
			return
		}
		if text, err = io.ReadAll(io.LimitReader(z, maxText)); err != nil {
			return
		}
	}
	if isXMP {
		m.xmp = text
		return
	}
	// Three lines precede the hexadecimal digits.
	lines := strings.Split(string(text), "\n")
	if m.exif == nil && len(lines) > 3 {
		if b, err := hex.DecodeString(strings.Join(lines[3:], "")); err == nil {
			m.exif = b
		}
	}
}

// stream returns the file with the chunks of pngFile alone and with their checksums, which Pillow
// does not check for pixels. Transparency is left out: it is applied as Pillow does.
func (p *pngFile) stream() io.Reader {
	parts := []io.Reader{strings.NewReader(pngMagic)}
	chunk := func(name string, body []byte) {
		head := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), name...)
		sum := crc32.Update(crc32.ChecksumIEEE(head[4:]), crc32.IEEETable, body)
		parts = append(parts, bytes.NewReader(head), bytes.NewReader(body), bytes.NewReader(binary.BigEndian.AppendUint32(nil, sum)))
	}
	chunk("IHDR", p.header)
	if p.color == 3 {
		// Pixels keep their indexes: the colors are applied below.
		chunk("PLTE", make([]byte, 3<<min(p.depth, 8)))
	}
	chunk("IDAT", slices.Concat(p.data...))
	chunk("IEND", nil)
	return io.MultiReader(parts...)
}

func decodePNG(data []byte) (*rgb.Image, error) {
	p, err := readPNG(data)
	if err != nil {
		return nil, err
	}
	m, stored, err := p.unpack()
	if err != nil {
		return nil, err
	}
	if m == nil {
		m = rgb.New(p.Width, p.Height)
		for y := range m.Height {
			p.row(m.Row(y), stored, y)
		}
	}
	p.hideColor(m.Pix)
	return m, nil
}

// errNoRows says that a build without cgo unpacks every PNG with image/png.
var errNoRows = errors.New("png: no cgo")

// unpack returns the image, if it is stored as red, green and blue of 8 bits, else what is stored. The
// common forms are unpacked by the archive of engine/tokenizer, the others by image/png.
func (p *pngFile) unpack() (*rgb.Image, image.Image, error) {
	plain := p.depth == 8 && p.header[10] == 0 && p.header[11] == 0 && p.header[12] == 0
	if samples := map[byte]int{0: 1, 2: 3, 3: 1, 6: 4}[p.color]; plain && samples > 0 {
		pix, err := p.unpackRows(samples)
		all, stride := image.Rect(0, 0, p.Width, p.Height), samples*p.Width
		switch {
		case err == errNoRows:
		case err != nil:
			return nil, nil, err
		case p.color == 0:
			return nil, &image.Gray{Pix: pix, Stride: stride, Rect: all}, nil
		case p.color == 2:
			return &rgb.Image{Width: p.Width, Height: p.Height, Pix: pix}, nil, nil
		case p.color == 3:
			return nil, &image.Paletted{Pix: pix, Stride: stride, Rect: all}, nil
		default:
			return nil, &image.NRGBA{Pix: pix, Stride: stride, Rect: all}, nil
		}
	}
	stored, err := png.Decode(p.stream())
	if err != nil {
		return nil, nil, pngError(err)
	}
	return nil, stored, nil
}

func pngError(err error) error {
	var u png.UnsupportedError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return refuse(Truncated, PNG, "the file ends before its last row")
	case errors.As(err, &u):
		return refuse(Unsupported, PNG, "%s is not read", string(u))
	}
	return refuse(Damaged, PNG, "%s", strings.TrimPrefix(err.Error(), "png: invalid format: "))
}

// row converts row y as Pillow's loader does.
func (p *pngFile) row(to []byte, stored image.Image, y int) {
	switch s := stored.(type) {
	case *image.Gray:
		for x, v := range s.Pix[y*s.Stride : y*s.Stride+s.Rect.Dx()] {
			fill(to[3*x:], v)
		}
	case *image.Gray16:
		for x := range p.Width {
			fill(to[3*x:], clip8(s.Gray16At(x, y).Y))
		}
	case *image.Paletted:
		p.palette().paint(to, s.Pix[y*s.Stride:y*s.Stride+s.Rect.Dx()])
	case *image.RGBA: // opaque
		opaque(to, s.Pix[y*s.Stride:], 4, 1)
	case *image.RGBA64:
		opaque(to, s.Pix[y*s.Stride:], 8, 2)
	case *image.NRGBA:
		translucent(to, s.Pix[y*s.Stride:], 4, 1)
	case *image.NRGBA64:
		translucent(to, s.Pix[y*s.Stride:], 8, 2)
	}
}

// opaque copies the first byte of each of three samples; pixel and sample are their bytes.
func opaque(to, from []byte, pixel, sample int) {
	for ; len(to) >= 3; to, from = to[3:], from[pixel:] {
		to[0], to[1], to[2] = from[0], from[sample], from[2*sample]
	}
}

// translucent puts pixels of four samples over white.
func translucent(to, from []byte, pixel, sample int) {
	for ; len(to) >= 3; to, from = to[3:], from[pixel:] {
		a := from[3*sample]
		to[0], to[1], to[2] = overWhite(from[0], a), overWhite(from[sample], a), overWhite(from[2*sample], a)
	}
}

// palette returns the colors over white.
func (p *pngFile) palette() *palette {
	t := readPalette(p.colors, 3, 0, 1, 2)
	for i, a := range p.transparent[:min(len(p.transparent), len(t))] {
		t.setAlpha(i, a)
	}
	return t
}

// hideColor makes pixels of tRNS's color white. Pillow compares the lower eight bits of each sample
// of tRNS to the converted pixel.
func (p *pngFile) hideColor(pix []byte) {
	t := p.transparent
	switch {
	case p.color == 2 && len(t) >= 6:
		hide(pix, [3]byte{t[1], t[3], t[5]})
	case p.color == 0 && len(t) >= 2:
		v := t[1]
		if p.depth == 1 && (t[0] != 0 || t[1] != 0) {
			v = 255
		}
		hide(pix, [3]byte{v, v, v})
	}
}
