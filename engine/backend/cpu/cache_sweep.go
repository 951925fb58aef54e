//go:build cgo && linux

package cpu

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"vapp.dev/engine/backend"
)

// ways is what stands between stem and suffix: CacheFile's variant and digest.
var ways = regexp.MustCompile(`^[a-z0-9]+-[0-9a-f]{8}$`)

// sweep looks at the other files of packed weights with this one's stem. In a directory of
// the checkpoint's own it removes those that no start of this version would read: of another
// checkpoint or version, damaged, and drafts that nobody writes. The rest another profile
// may want, and is told. What cannot be read or removed counts among the rest.
func (d *device) sweep() (removed, others []backend.CacheFile) {
	dir := filepath.Dir(d.kept.Path)
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil
	}
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		way, found := strings.CutPrefix(e.Name(), d.cacheStem+".")
		way, part := strings.CutSuffix(way, ".part")
		way, packed := strings.CutSuffix(way, ".packed")
		st, err := e.Info()
		if !found || !packed || !ways.MatchString(way) || err != nil || !st.Mode().IsRegular() || path == d.kept.Path {
			continue
		}
		f := backend.CacheFile{Path: path, Bytes: st.Size()}
		switch {
		case d.cacheOwn && (part && abandon(path) || !part && d.useless(path) && os.Remove(path) == nil):
			removed = append(removed, f)
		case !part:
			others = append(others, f)
		}
	}
	return removed, others
}

// useless says that no start of this version reads the file for this checkpoint.
func (d *device) useless(path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, cacheHead))
	if err != nil {
		return false
	}
	h, err := parseCache(head)
	return err != nil || h.made != d.cacheMade
}

// abandon removes a draft whose writer is gone: nobody holds its lock.
func abandon(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer f.Close() // and with it the lock
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && os.Remove(path) == nil
}
