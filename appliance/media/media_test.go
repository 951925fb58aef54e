package media

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// golden is a line of testdata/pillow.txt.
type golden struct {
	file  string
	frame int
	size  string // "refused": Pillow does not read it
	hash  string
}

func goldens(t testing.TB) []golden {
	t.Helper()
	b, err := os.ReadFile("testdata/pillow.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []golden
	s := bufio.NewScanner(bytes.NewReader(b))
	for s.Scan() {
		if f := strings.Fields(s.Text()); len(f) >= 3 && f[0] != "#" {
			g := golden{file: f[0], size: f[2], hash: f[len(f)-1]}
			if _, err := fmt.Sscan(f[1], &g.frame); err != nil {
				t.Fatalf("%q: %v", s.Text(), err)
			}
			out = append(out, g)
		}
	}
	return out
}

func read(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata/images", file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPillow compares the pixels of every image of testdata with Pillow's.
func TestPillow(t *testing.T) {
	files := map[string]bool{}
	for _, g := range goldens(t) {
		files[g.file] = true
		if !exact && (strings.HasSuffix(g.file, ".jpg") || strings.HasSuffix(g.file, ".webp")) {
			continue // TestWithoutCgo has these
		}
		data := read(t, g.file)
		frames, err := evenly(data, Bounds{}, g.frame+1000)
		if g.size == "refused" {
			var e *Error
			if !errors.As(err, &e) {
				t.Errorf("%s: got %v, Pillow refuses it", g.file, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", g.file, err)
			continue
		}
		if len(frames) <= g.frame {
			t.Errorf("%s has %d frames, Pillow reads frame %d", g.file, len(frames), g.frame)
			continue
		}
		m := frames[g.frame].Image
		if size := fmt.Sprintf("%dx%d", m.Width, m.Height); size != g.size {
			t.Errorf("%s, frame %d: got %s, want %s", g.file, g.frame, size, g.size)
		}
		if hash := fmt.Sprintf("%x", sha256.Sum256(m.Pix)); hash != g.hash {
			t.Errorf("%s, frame %d: the pixels differ from Pillow's: %v", g.file, g.frame, m.Pix[:min(24, len(m.Pix))])
		}
		if info, err := Header(data); err == nil {
			if w, h := info.Size(); w != m.Width || h != m.Height {
				t.Errorf("%s: the header says %d × %d, the image is %d × %d", g.file, w, h, m.Width, m.Height)
			}
		}
	}
	if len(files) < 60 {
		t.Errorf("%d images, want at least 60", len(files))
	}
}

// evenly returns at most that many frames, spread from the first to the last.
func evenly(data []byte, b Bounds, most int) ([]Frame, error) {
	info, err := Header(data)
	if err != nil {
		return nil, err
	}
	n := max(1, min(info.Frames, most))
	picks := make([]int, n)
	for i := 1; i < n; i++ {
		picks[i] = i * (info.Frames - 1) / (n - 1)
	}
	return Frames(data, b, picks)
}

// TestAnimation reads the durations of animations and refuses other formats.
func TestAnimation(t *testing.T) {
	for file, want := range map[string]string{
		"frames-4-6.gif": "8 frames, 14.29 a second", "rgb.gif": "1 frames, 0.00 a second",
		"rgb.png": "image: it is a PNG image; GIF and WebP are read",
	} {
		i, err := Animation(read(t, file))
		got := fmt.Sprintf("%d frames, %.2f a second", i.Frames, i.Rate())
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
	for magic, want := range map[string]string{
		"\x00\x00\x00\x20ftypisom": "it is a video (MP4); GIF and WebP are read", "\x1a\x45\xdf\xa3": "it is a video (Matroska or WebM)",
		"RIFF\x00\x00\x00\x00AVI LIST": "it is a video (AVI)", "": "GIF and WebP are read",
	} {
		if _, err := Animation([]byte(magic)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", magic, err, want)
		}
	}
}
