//go:build cgo

package media

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"testing"
)

// pngOf returns a PNG of 8 bits a sample whose data is those bytes, compressed.
func pngOf(t *testing.T, kind byte, width, height, level int, data []byte) []byte {
	t.Helper()
	var z bytes.Buffer
	w, err := zlib.NewWriterLevel(&z, level)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	out := []byte(pngMagic)
	chunk := func(name string, body []byte) {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(body))), name...)
		out = append(out, body...)
		out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[len(out)-len(body)-4:]))
	}
	header := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(width)), uint32(height))
	chunk("IHDR", append(header, 8, kind, 0, 0, 0))
	if kind == 3 {
		colors := make([]byte, 768)
		for i := range colors {
			colors[i] = byte(i * 5)
		}
		chunk("PLTE", colors)
	}
	chunk("IDAT", z.Bytes())
	chunk("IEND", nil)
	return out
}

// TestRows compares rows of each filter, of random and of repeated bytes, with image/png's. The larger images
// exceed deflate's window, so that references into rows before are moved with it.
func TestRows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for kind, samples := range map[byte]int{0: 1, 2: 3, 3: 1, 6: 4} {
		for n, size := range [][2]int{{1, 1}, {2, 7}, {17, 10}, {1, 400}, {50_000, 2}, {311, 300}} {
			width, height := size[0], size[1]
			var data []byte
			for y := range height {
				data = append(data, byte((y+n)%5))
				for x := range samples * width {
					v := byte(r.Uint32())
					if n%2 == 1 {
						v = byte(x*x>>3 ^ y)
					}
					data = append(data, v)
				}
			}
			for level := range 10 {
				if level > 1 && level < 9 && n > 2 {
					continue
				}
				file := pngOf(t, kind, width, height, level, data)
				want, err := png.Decode(bytes.NewReader(file))
				if err != nil {
					t.Fatal(err)
				}
				got, err := Decode(file, Bounds{})
				if err != nil {
					t.Fatalf("kind %d, %v, level %d: %v", kind, size, level, err)
				}
				if x, y, ok := other(got.Pix, want); !ok {
					t.Fatalf("kind %d, %v, level %d: pixel %d, %d differs", kind, size, level, x, y)
				}
			}
		}
	}
}

// other returns the first pixel that is not that of an image, put over white.
func other(pix []byte, want image.Image) (x, y int, ok bool) {
	b := want.Bounds()
	for y := range b.Dy() {
		for x := range b.Dx() {
			c := color.NRGBAModel.Convert(want.At(x, y)).(color.NRGBA)
			p := pix[3*(y*b.Dx()+x):]
			if p[0] != overWhite(c.R, c.A) || p[1] != overWhite(c.G, c.A) || p[2] != overWhite(c.B, c.A) {
				return x, y, false
			}
		}
	}
	return 0, 0, true
}

// TestRowsRefused: data that is not exactly the rows is refused as image/png refuses it.
func TestRowsRefused(t *testing.T) {
	rows := bytes.Repeat([]byte{1, 9, 9, 9, 9, 9, 9}, 5) // 2 × 5 pixels
	file := func(data []byte) []byte { return pngOf(t, 2, 2, 5, 6, data) }
	unknown := bytes.Clone(rows)
	unknown[14] = 5
	good := file(rows)
	changed := bytes.Clone(good)
	changed[len(changed)-12-4-1] ^= 1 // the last byte of zlib's checksum
	for name, c := range map[string]struct {
		file []byte
		want Reason
	}{
		"a row is missing":  {file(rows[:28]), Truncated},
		"a byte is missing": {file(rows[:34]), Truncated},
		"a byte follows":    {file(append(bytes.Clone(rows), 0)), Damaged},
		"much follows":      {file(make([]byte, 1<<22)), Damaged},
		"filter 5":          {file(unknown), Damaged},
		"a wrong checksum":  {changed, Damaged},
	} {
		_, err := Decode(c.file, Bounds{})
		wantReason(t, name, err, c.want)
		if _, err := png.Decode(bytes.NewReader(c.file)); err == nil {
			t.Errorf("%s: image/png reads it", name)
		}
	}
	if _, err := Decode(good, Bounds{}); err != nil {
		t.Error(err)
	}
	bomb := file(make([]byte, 1<<24))
	if n := allocated(func() { _, _ = Decode(bomb, Bounds{}) }); n > 1<<20 {
		t.Errorf("%d bytes were allocated for data that follows", n)
	}
}
