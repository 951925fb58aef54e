package media

import (
	"errors"
	"testing"
)

// fuzzBounds keep an input of the fuzzers within a few megabytes.
var fuzzBounds = Bounds{Pixels: 1 << 18, Animation: 1 << 20}

// FuzzJPEG, FuzzWebP and FuzzPixels decode any bytes: an image within the bounds or an *Error.
func FuzzJPEG(f *testing.F) { fuzz(f, JPEG) }

// FuzzWebP decodes frames too.
func FuzzWebP(f *testing.F) { fuzz(f, WebP) }

// FuzzPNG has zlib and filters before conversions.
func FuzzPNG(f *testing.F) { fuzz(f, PNG) }

// FuzzPixels is for GIF, BMP and TIFF.
func FuzzPixels(f *testing.F) { fuzz(f, GIF, BMP, TIFF) }

func fuzz(f *testing.F, formats ...Format) {
	f.Helper()
	seen := map[string]bool{}
	for _, g := range goldens(f) {
		data := read(f, g.file)
		for _, want := range formats {
			if formatOf(data) == want && !seen[g.file] {
				seen[g.file] = true
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		frames, err := evenly(data, fuzzBounds, 3)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Reason == Failed {
				t.Fatalf("not an error about the data: %v", err)
			}
			return
		}
		info, err := Header(data)
		if err != nil || len(frames) == 0 || len(frames) > 3 {
			t.Fatalf("%d frames and header error %v", len(frames), err)
		}
		w, h := info.Size()
		for _, fr := range frames {
			if m := fr.Image; m.Width != w || m.Height != h || len(m.Pix) != 3*w*h {
				t.Fatalf("%d × %d with %d bytes, the header says %d × %d", m.Width, m.Height, len(m.Pix), w, h)
			}
		}
	})
}
