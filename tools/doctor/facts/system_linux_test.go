package facts

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestReadCold reads a file of no whole number of pages to its end, at most readMost bytes of a
// longer one, and nothing after the time is over.
func TestReadCold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model")
	for _, c := range []struct{ size, want int64 }{{5000, 5000}, {0, 0}, {readMost + 3*readAlign, readMost}} {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, c.size); err != nil {
			t.Fatal(err)
		}
		if n, took, err := readCold(t.Context(), path); n != c.want || err != nil || took <= 0 {
			t.Errorf("%d bytes: read %d in %v, %v; want %d", c.size, n, took, err, c.want)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if n, _, err := readCold(over, path); n != 0 || err != nil {
		t.Errorf("after the time: %d, %v", n, err)
	}
	if _, _, err := readCold(t.Context(), path+".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
