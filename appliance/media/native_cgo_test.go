//go:build cgo

package media

import (
	"sync"
	"testing"

	"vapp.dev/engine/vision/rgb"
)

// exact: JPEG and WebP have the pixels of Pillow.
const exact = true

// TestWithoutCgo compares the decoders of builds without cgo with Pillow's pixels: the difference of
// a sample over the images of a format.
func TestWithoutCgo(t *testing.T) {
	type figures struct{ sum, n, most int }
	got := map[Format]*figures{JPEG: {}, WebP: {}}
	for _, g := range goldens(t) {
		data := read(t, g.file)
		info, err := Header(data)
		f := got[info.Format]
		if err != nil || f == nil || g.size == "refused" || info.Frames > 1 {
			continue
		}
		want, err := Decode(data, Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		var m *rgb.Image
		if info.Format == JPEG {
			m, err = goJPEG(data, info)
		} else if frames, e := goWebP(data, info); e == nil {
			m, err = frames[0].Image, nil
		}
		if err != nil {
			t.Errorf("%s: %v", g.file, err)
			continue
		}
		for i, v := range m.Upright(info.Orientation).Pix {
			d := int(v) - int(want.Pix[i])
			d = max(d, -d)
			f.sum, f.n, f.most = f.sum+d, f.n+1, max(f.most, d)
		}
	}
	for format, f := range got {
		mean := float64(f.sum) / float64(f.n)
		t.Logf("%s: mean %.2f, most %d, over %d samples", format, mean, f.most, f.n)
		if mean > 8 {
			t.Errorf("%s: the mean difference is %.2f", format, mean)
		}
	}
}

// TestTogether decodes on several goroutines.
func TestTogether(t *testing.T) {
	var wg sync.WaitGroup
	for _, file := range []string{"rgb-33x17-420.jpg", "cut-rgb-33x17-420.jpg", "cmyk.jpg", "frames.webp", "cut-lossy.webp"} {
		data := read(t, file)
		_, want := Decode(data, Bounds{})
		for range 4 {
			wg.Go(func() {
				for range 25 {
					if _, err := Decode(data, Bounds{}); (err == nil) != (want == nil) {
						t.Errorf("%s: %v, then %v", file, want, err)
					}
				}
			})
		}
	}
	wg.Wait()
}
