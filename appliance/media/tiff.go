package media

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"io"
	"strings"

	"golang.org/x/image/tiff"

	"vapp.dev/engine/vision/rgb"
)

// tiffFile is what the first directory of a TIFF says.
type tiffFile struct {
	Info
	photometric, compression, planes, fill uint32
	bits                                   []uint32
	extra                                  uint32 // kind of a fourth sample
	extras                                 int
	tileWidth, tileHeight                  uint32
	colors                                 []uint32 // red, green and blue: a third each
	bigEndian                              bool
}

// The tags that are read.
const (
	tagWidth, tagHeight, tagBits, tagCompression, tagPhotometric = 256, 257, 258, 259, 262
	tagFill, tagSamples, tagPlanes, tagColors                    = 266, 277, 284, 320
	tagTileWidth, tagTileHeight, tagExtra, tagFormat, tagXMP     = 322, 323, 338, 339, 700
)

var photometricNames = map[uint32]string{5: "CMYK", 6: "YCbCr", 8: "CIE L*a*b*"}

var compressionNames = map[uint32]string{6: "old JPEG", 7: "JPEG", 34712: "JPEG 2000", 34925: "LZMA", 50000: "Zstandard", 50001: "WebP"}

func readTIFF(data []byte) (t tiffFile, err error) {
	t.Info = Info{Format: TIFF, Frames: 1}
	t.planes, t.fill, t.compression = 1, 1, 1
	order, start, ok := tiffHeader(data)
	if !ok {
		if len(data) < 8 {
			return t, endsEarly(TIFF)
		}
		return t, refuse(Unsupported, TIFF, "it is a BigTIFF")
	}
	t.bigEndian = order == binary.BigEndian
	var meta metadata
	samples := uint32(1)
	for _, e := range tiffEntries(data, order, start) {
		v := tiffValues(data, e, order)
		if len(v) == 0 {
			continue
		}
		switch order.Uint16(e) {
		case tagWidth:
			t.Width = int(v[0])
		case tagHeight:
			t.Height = int(v[0])
		case tagBits:
			t.bits = v
		case tagCompression:
			t.compression = v[0]
		case tagPhotometric:
			t.photometric = v[0]
		case tagFill:
			t.fill = v[0]
		case tagSamples:
			samples = v[0]
		case tagPlanes:
			t.planes = v[0]
		case tagColors:
			t.colors = v
		case tagTileWidth:
			t.tileWidth = v[0]
		case tagTileHeight:
			t.tileHeight = v[0]
		case tagExtra:
			t.extra, t.extras = v[0], len(v)
		case tagFormat:
			if v[0] != 1 {
				return t, refuse(Unsupported, TIFF, "its samples are not unsigned numbers")
			}
		case tagOrientation:
			t.Orientation = orientationOf(e, order)
		case tagXMP:
			if at, n := int64(order.Uint32(e[8:])), int64(order.Uint32(e[4:])); at+n <= int64(len(data)) {
				meta.xmp = data[at : at+n]
			}
		}
	}
	if t.Orientation == 0 {
		t.Orientation = meta.orientation()
	}
	if t.bits == nil {
		t.bits = []uint32{1}
	}
	if int64(samples) != int64(len(t.bits)) {
		return t, refuse(Unsupported, TIFF, "it has %d samples a pixel and the bits of %d", samples, len(t.bits))
	}
	return t, t.supported()
}

// tiffValues returns the numbers of an entry, at most 768: bytes, shorts and longs.
func tiffValues(data, e []byte, order binary.ByteOrder) []uint32 {
	kind, n := order.Uint16(e[2:]), order.Uint32(e[4:])
	size := map[uint16]uint32{1: 1, 3: 2, 4: 4, 7: 1}[kind]
	if size == 0 || n == 0 {
		return nil
	}
	n = min(n, 3*256)
	from := e[8:12]
	if n*size > 4 {
		at := int64(order.Uint32(e[8:]))
		if at+int64(n*size) > int64(len(data)) {
			return nil
		}
		from = data[at:]
	}
	out := make([]uint32, n)
	for i := range out {
		switch size {
		case 1:
			out[i] = uint32(from[i])
		case 2:
			out[i] = uint32(order.Uint16(from[2*i:]))
		default:
			out[i] = order.Uint32(from[4*i:])
		}
	}
	return out
}

// supported returns an error, by name, for what golang.org/x/image/tiff does not read or does not
// read as Pillow does.
func (t *tiffFile) supported() error {
	const white, black, colors, indexed = 0, 1, 2, 3
	no := func(msg string, args ...any) error { return refuse(Unsupported, TIFF, msg, args...) }
	bits, n := t.bits[0], len(t.bits)
	for _, b := range t.bits {
		if b != bits {
			return no("its samples have different numbers of bits")
		}
	}
	switch {
	case photometricNames[t.photometric] != "":
		return no("its colors are %s; greys, a palette and RGB are read", photometricNames[t.photometric])
	case t.photometric > indexed:
		return no("photometric interpretation %d is not read", t.photometric)
	case t.photometric == white && bits == 16:
		return no("16 bits where 0 is white are not read")
	case t.photometric == colors && (bits != 8 && bits != 16 || n < 3 || n > 4):
		return no("%d samples of %d bits are not read", n, bits)
	case t.photometric == colors && n == 4 && (t.extras != 1 || t.extra != 2):
		return no("a fourth sample that is not straight alpha is not read")
	case t.photometric != colors && n > 1:
		return no("greys and indexes with more samples are not read")
	case t.photometric == indexed && bits != 8, bits != 1 && bits != 8 && bits != 16:
		return no("%d bits a sample are not read", bits)
	case t.planes != 1 && n > 1:
		return no("samples in planes of their own are not read")
	case t.fill != 1:
		return no("bytes whose lowest bit is first are not read")
	case t.photometric == indexed && len(t.colors) != 3*256:
		return refuse(Damaged, TIFF, "its palette has %d numbers in place of 768", len(t.colors))
	}
	switch t.compression {
	case 1, 5, 8, 32773, 32946:
		return nil
	case 2, 3, 4:
		return no("fax compression is not read")
	}
	if name := compressionNames[t.compression]; name != "" {
		return no("its compression is %s; none, LZW, Deflate and PackBits are read", name)
	}
	return no("compression %d is not read", t.compression)
}

func decodeTIFF(data []byte) (*rgb.Image, error) {
	t, err := readTIFF(data)
	if err != nil {
		return nil, err
	}
	if tw, th := int64(t.tileWidth), int64(t.tileHeight); tw > int64(t.Width)+1024 || th > int64(t.Height)+1024 {
		return nil, refuse(Damaged, TIFF, "its tiles of %d × %d pixels are larger than the image", tw, th)
	}
	stored, err := tiff.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, tiffError(err)
	}
	if b := stored.Bounds(); b.Dx() != t.Width || b.Dy() != t.Height {
		return nil, refuse(Damaged, TIFF, "its directory has two sizes")
	}
	m := rgb.New(t.Width, t.Height)
	for y := range m.Height {
		t.row(m.Row(y), stored, y)
	}
	return m, nil
}

func tiffError(err error) error {
	var u tiff.UnsupportedError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return refuse(Truncated, TIFF, "the file ends before its last row")
	case errors.As(err, &u):
		return refuse(Unsupported, TIFF, "%s is not read", string(u))
	}
	return refuse(Damaged, TIFF, "%s", strings.TrimPrefix(err.Error(), "tiff: invalid format: "))
}

func (t *tiffFile) row(to []byte, stored image.Image, y int) {
	switch s := stored.(type) {
	case *image.Gray:
		for x, v := range s.Pix[y*s.Stride : y*s.Stride+s.Rect.Dx()] {
			fill(to[3*x:], v)
		}
	case *image.Gray16:
		for x := range t.Width {
			fill(to[3*x:], clip8(s.Gray16At(x, y).Y))
		}
	case *image.Paletted:
		for x, v := range s.Pix[y*s.Stride : y*s.Stride+s.Rect.Dx()] {
			for c := range 3 {
				to[3*x+c] = byte(t.colors[256*c+int(v)] >> 8)
			}
		}
	case *image.RGBA:
		opaque(to, s.Pix[y*s.Stride:], 4, 1)
	case *image.RGBA64:
		opaque(to, s.Pix[y*s.Stride:], 8, 2)
	case *image.NRGBA:
		translucent(to, s.Pix[y*s.Stride:], 4, 1)
	case *image.NRGBA64:
		translucent(to, s.Pix[y*s.Stride:], 8, 2)
	}
}
