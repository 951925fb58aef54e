//go:build clients && soak

package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// cgroup is a cgroup of version 1 or 2 with a memory limit.
type cgroup struct {
	dir   string
	limit string // file of the limit
	rss   string // line of memory.stat: bytes without the page cache
}

var groups atomic.Int64

// newCgroup creates a cgroup. It skips the test if that is not permitted.
func newCgroup(t *testing.T, bytes int64) cgroup {
	t.Helper()
	var last error
	for _, g := range []cgroup{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "rss"},
		{"/sys/fs/cgroup", "memory.max", "anon"},
	} {
		g.dir = filepath.Join(g.dir, fmt.Sprintf("vapp-test-%d-%d", os.Getpid(), groups.Add(1)))
		if last = os.Mkdir(g.dir, 0o755); last != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(g.dir) })
		if last = os.WriteFile(filepath.Join(g.dir, g.limit), []byte(strconv.FormatInt(bytes, 10)), 0o644); last == nil {
			for _, swap := range []string{"memory.memsw.limit_in_bytes", "memory.swap.max"} { // if swap is accounted
				n := map[bool]string{true: "0", false: strconv.FormatInt(bytes, 10)}[swap == "memory.swap.max"]
				_ = os.WriteFile(filepath.Join(g.dir, swap), []byte(n), 0o644)
			}
			return g
		}
	}
	t.Skipf("not run: no control group with a limit of memory can be made here: %v", last)
	return cgroup{}
}

// command runs a program in the group.
func (g cgroup) command(bin string, args ...string) []string {
	return append([]string{"/bin/sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(g.dir, "cgroup.procs"), bin}, args...)
}

// used returns the memory of the group in bytes without the page cache.
func (g cgroup) used(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(g.dir, "memory.stat"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == g.rss {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("memory.stat has no %s", g.rss)
	return 0
}
