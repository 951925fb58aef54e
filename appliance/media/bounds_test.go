package media

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"runtime"
	"slices"
	"testing"
	"time"

	"vapp.dev/engine/vision/rgb"
)

// wantReason checks the reason of an error, and that the error is one line.
func wantReason(t *testing.T, name string, err error, want Reason) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("%s: got %v, want an *Error", name, err)
		return
	}
	if e.Reason != want {
		t.Errorf("%s: got %v (%v), want %v", name, e.Reason, err, want)
	}
	if bytes.ContainsAny([]byte(err.Error()), "\n\r") {
		t.Errorf("%s: the error is not one line: %q", name, err)
	}
}

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// at returns data with v, of 2 or 4 bytes, at a position.
func at(data []byte, position int, order binary.ByteOrder, v any) []byte {
	out := slices.Clone(data)
	var b bytes.Buffer
	_ = binary.Write(&b, order, v)
	copy(out[position:], b.Bytes())
	return out
}

// TestHugeHeaders gives sizes of which no pixel may be allocated.
func TestHugeHeaders(t *testing.T) {
	be, le := binary.BigEndian, binary.LittleEndian
	jpg := read(t, "grey.jpg")
	frame := bytes.Index(jpg, []byte{0xff, 0xc0})
	tif := read(t, "rgb.tif")
	order, start, _ := tiffHeader(tif)
	var sizes []int // positions of the values of width and height
	for i, e := range tiffEntries(tif, order, start) {
		if tag := order.Uint16(e); tag == tagWidth || tag == tagHeight {
			tif = at(tif, int(start)+2+12*i+2, order, uint16(typeLong))
			sizes = append(sizes, int(start)+2+12*i+8)
		}
	}
	for name, data := range map[string][]byte{
		"PNG":  read(t, "huge.png"),
		"JPEG": at(at(jpg, frame+5, be, uint16(65500)), frame+7, be, uint16(65500)),
		"WebP": at(at(read(t, "lossy-alpha.webp"), 24, le, uint32(0xffffff)), 27, le, uint16(0xffff)),
		"GIF":  at(at(read(t, "rgb.gif"), 6, le, uint16(65535)), 8, le, uint16(65535)),
		"BMP":  at(at(read(t, "rgb.bmp"), 18, le, uint32(100000)), 22, le, uint32(100000)),
		"TIFF": at(at(tif, sizes[0], order, uint32(100000)), sizes[1], order, uint32(100000)),
	} {
		var err error
		if n := allocated(func() { _, err = Decode(data, Bounds{}) }); n > 1<<18 {
			t.Errorf("%s: %d bytes were allocated", name, n)
		}
		wantReason(t, name, err, TooLarge)
	}
}

// TestLimits refuses by the caller's bounds.
func TestLimits(t *testing.T) {
	_, err := Decode(read(t, "rgb.png"), Bounds{Pixels: 19*11 - 1})
	wantReason(t, "pixels", err, TooLarge)
	if _, err := Decode(read(t, "rgb.png"), Bounds{Pixels: 19 * 11}); err != nil {
		t.Error(err)
	}
	gif := read(t, "frames-4-6.gif")
	_, err = evenly(gif, Bounds{Animation: 8*12*10 - 1}, 2)
	wantReason(t, "the last of 8 frames", err, TooLarge)
	if f, err := evenly(gif, Bounds{Animation: 8 * 12 * 10}, 2); err != nil || len(f) != 2 || f[1].Start != 7*70*time.Millisecond {
		t.Errorf("got %d frames (%v), the second %v", len(f), err, f[1].Start)
	}
	if _, err = Decode(gif, Bounds{Animation: 1}); err != nil {
		t.Errorf("the first frame: %v", err)
	}
}

// TestManyFrames refuses a GIF of a million frames before it decodes one.
func TestManyFrames(t *testing.T) {
	gif := read(t, "inside.gif")
	frame := gif[13+48 : len(gif)-1]
	data := slices.Concat(gif[:13+48], bytes.Repeat(frame, maxFrames+1), []byte{';'})
	_, err := Decode(data, Bounds{})
	wantReason(t, "frames", err, TooLarge)
	if f, err := evenly(slices.Concat(gif[:13+48], bytes.Repeat(frame, 1000), []byte{';'}), Bounds{}, 3); err != nil || len(f) != 3 {
		t.Errorf("1000 frames: %d, %v", len(f), err)
	}
}

// TestManyChunks decodes a PNG whose data is cut into single bytes and has many compressed texts.
func TestManyChunks(t *testing.T) {
	data := read(t, "rgb.png")
	want, err := Decode(data, Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	chunk := func(out []byte, name string, body []byte) []byte {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(body))), name...)
		out = append(out, body...)
		return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[len(out)-len(body)-4:]))
	}
	p, err := readPNG(data)
	if err != nil {
		t.Fatal(err)
	}
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	w.Write(make([]byte, 1<<20))
	w.Close()
	out := slices.Clone(data[:33])
	for range 1000 {
		out = chunk(out, "zTXt", append([]byte("Raw profile type exif\x00\x00"), z.Bytes()...))
	}
	for _, b := range slices.Concat(p.data...) {
		out = chunk(out, "IDAT", []byte{b})
		out = chunk(out, "IDAT", nil)
	}
	out = chunk(out, "IEND", nil)
	var got *rgb.Image
	if n := allocated(func() { got, err = Decode(out, Bounds{}) }); n > 64<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	if err != nil || !bytes.Equal(got.Pix, want.Pix) {
		t.Errorf("error %v or other pixels", err)
	}
}

// TestNotAnImage names what the data is.
func TestNotAnImage(t *testing.T) {
	for _, s := range []string{"", "B", "<html>", "%PDF-1.7", "RIFF....WAVEfmt ", "\x00\x01\x02"} {
		_, err := Decode([]byte(s), Bounds{})
		wantReason(t, s, err, NotImage)
	}
	_, err := Decode([]byte("\x00\x00\x00\x1cftypavif\x00\x00"), Bounds{})
	wantReason(t, "AVIF", err, Unsupported)
	_, err = Decode([]byte("%PDF-1.7"), Bounds{})
	if want := `image: the data starts with "%PDF": a PDF document; PNG, JPEG, WebP, GIF, BMP and TIFF are read`; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

// TestPNGBombs gives profiles and texts that would need gigabytes.
func TestPNGBombs(t *testing.T) {
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	zeros := make([]byte, 1<<20)
	for range 16 {
		w.Write(zeros)
	}
	w.Close()
	data := read(t, "rgb.png")
	want, err := Decode(data, Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	for chunk, head := range map[string]string{"iCCP": "icc\x00\x00", "zTXt": "Raw profile type exif\x00\x00", "iTXt": "XML:com.adobe.xmp\x00\x01\x00\x00\x00"} {
		body := append([]byte(chunk+head), z.Bytes()...)
		bomb := slices.Concat(data[:33], binary.BigEndian.AppendUint32(nil, uint32(len(body)-4)), body,
			binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(body)), data[33:])
		var got *rgb.Image
		if n := allocated(func() { got, err = Decode(bomb, Bounds{}) }); n > 8<<20 {
			t.Errorf("%s: %d bytes were allocated", chunk, n)
		}
		if err != nil || !bytes.Equal(got.Pix, want.Pix) {
			t.Errorf("%s: error %v or other pixels", chunk, err)
		}
	}
}

// TestScans refuses a JPEG with more scans than any encoder writes.
func TestScans(t *testing.T) {
	data := read(t, "scans-1.jpg")
	scan := data[bytes.Index(data, []byte{0xff, 0xda}) : len(data)-2]
	with := func(n int) []byte {
		return slices.Concat(data[:len(data)-2], bytes.Repeat(scan, n-1), data[len(data)-2:])
	}
	_, err := Decode(with(maxScans+1), Bounds{})
	wantReason(t, "too many scans", err, Damaged)
	if exact {
		if _, err := Decode(with(maxScans), Bounds{}); err != nil {
			t.Error(err)
		}
	}
}

// TestCut cuts every image at many places: an error or pixels, and no panic.
func TestCut(t *testing.T) {
	for _, g := range goldens(t) {
		data := read(t, g.file)
		for n := range 40 {
			_, err := evenly(data[:len(data)*n/40], Bounds{}, 100)
			var e *Error
			if err != nil && (!errors.As(err, &e) || e.Reason == Failed) {
				t.Errorf("%s cut to %d/40: %v", g.file, n, err)
			}
		}
	}
}

// TestDamaged changes single bytes of every image.
func TestDamaged(t *testing.T) {
	for _, g := range goldens(t) {
		if g.frame > 0 {
			continue
		}
		data := read(t, g.file)
		for i := range data {
			if i%7 > 0 {
				continue
			}
			changed := slices.Clone(data)
			changed[i] ^= byte(1 + i*37)
			_, err := evenly(changed, Bounds{Pixels: 1 << 20, Animation: 1 << 21}, 4)
			var e *Error
			if err != nil && (!errors.As(err, &e) || e.Reason == Failed) {
				t.Errorf("%s with byte %d changed: %v", g.file, i, err)
			}
		}
	}
}
