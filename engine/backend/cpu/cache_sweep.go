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

// variantSuffix matches the part of a file name between stem and suffix: CacheFile's variant and
// digest.
var variantSuffix = regexp.MustCompile(`^[a-z0-9]+-[0-9a-f]{8}$`)

// sweep examines the other cache files with this one's stem. If no other model uses the
// directory, it removes files that no start of this version can read (of another checkpoint
// or version, or damaged) and unfinished files without a writer. It returns the removed files
// and the other ones, which another profile may use. A file that cannot be read or removed
// counts among the others.
func (d *device) sweep() (removed, others []backend.CacheFile) {
	dir := filepath.Dir(d.cacheUse.Path)
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil
	}
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		suffix, found := strings.CutPrefix(e.Name(), d.cacheStem+".")
		suffix, part := strings.CutSuffix(suffix, ".part")
		suffix, packed := strings.CutSuffix(suffix, ".packed")
		st, err := e.Info()
		if !found || !packed || !variantSuffix.MatchString(suffix) || err != nil || !st.Mode().IsRegular() || path == d.cacheUse.Path {
			continue
		}
		f := backend.CacheFile{Path: path, Bytes: st.Size()}
		switch {
		case d.cacheOwn && (part && removeAbandoned(path) || !part && d.useless(path) && os.Remove(path) == nil):
			removed = append(removed, f)
		case !part:
			others = append(others, f)
		}
	}
	return removed, others
}

// useless reports whether no start of this version can read the file for this checkpoint.
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

// removeAbandoned removes an unfinished file whose writer is gone: no process holds its lock.
func removeAbandoned(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer f.Close() // releases the lock
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && os.Remove(path) == nil
}
