package facts

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestListeners reads a table of /proc/net: sockets that listen on the port, of IPv4 and IPv6.
func TestListeners(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0 100 0 0 10 0
   1: 0100007F:1F40 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 222 1 0 20 4 0 10 -1
   2: 00000000:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1 0 100 0 0 10 0
   3: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 444 1 0 100 0 0 10 0
   4: damaged
`
	if got := slices.Sorted(maps.Keys(listeners(table, 8000))); !slices.Equal(got, []string{"111", "444"}) {
		t.Errorf("inodes %v", got)
	}
}

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
