//go:build cgo && linux

package cpu

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vapp.dev/engine/backend"
)

// TestSwapFile: the blocks of the file are allocated at open, and the file has no name.
func TestSwapFile(t *testing.T) {
	const n = 3 << 20
	dir := onDisk(t)
	s, err := openSwap(dir, n)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	var at unix.Stat_t
	if err := unix.Fstat(int(s.f.Fd()), &at); err != nil {
		t.Fatal(err)
	}
	if s.size() != n || at.Blocks*512 < n || at.Nlink != 0 {
		t.Errorf("%d bytes, %d on disk, %d names; want %d, all of them on disk, without a name", s.size(), at.Blocks*512, at.Nlink, n)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "vapp-swap-*")); len(left) > 0 {
		t.Errorf("%s lists %v", dir, left)
	}
	if none, err := openSwap("/nonexistent", 0); none != nil || err != nil || none.size() != 0 || none.close() != nil {
		t.Errorf("no bytes: %v, %v", none, err)
	}
}

// TestSwapFileRefused: if the file cannot be created, Open fails before it loads anything;
// the error names the directory and a remedy.
func TestSwapFileRefused(t *testing.T) {
	for what, c := range map[string]struct {
		dir  string
		n    int64
		want string
	}{
		"no directory": {"/nonexistent", 1, "no such file"},
		"disk full":    {onDisk(t), 1 << 60, "free; lower memory.swapSpace"},
		"in memory":    {"/dev/shm", 1, "in memory"},
	} {
		s, err := openSwap(c.dir, c.n)
		var no *backend.SwapError
		if !errors.As(err, &no) {
			if s.close(); what == "in memory" && errors.Is(err, fs.ErrNotExist) {
				continue
			}
			t.Errorf("%s: %v, want a *SwapError", what, err)
			continue
		}
		if no.Need != c.n || no.Dir != c.dir || !strings.Contains(err.Error(), c.want) && what != "in memory" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// onDisk returns a directory on a disk.
func onDisk(t *testing.T) string {
	for _, dir := range []string{t.TempDir(), "."} {
		if s, err := openSwap(dir, 4096); err == nil {
			s.close()
			return dir
		}
	}
	t.Skip("no directory on a disk")
	return ""
}
