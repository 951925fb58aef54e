//go:build cgo && linux

package cpu

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"vapp.dev/engine/backend"
)

var _ backend.CacheWriter = (*device)(nil)

// Keep writes header and arena to a file beside the one that it becomes: only whole
// files ever have the name. Of several processes one writes.
func (d *device) WriteCache(ctx context.Context) error {
	if d.kept.Path == "" || d.kept.Loaded {
		return nil
	}
	f, err := draft(d.kept.Path)
	if err != nil {
		return &backend.CacheError{Path: d.kept.Path, Err: err}
	}
	defer f.Close() // and with it the lock
	if d.replaced() {
		return &backend.CacheError{Path: d.kept.Path, Err: errors.Join(backend.ErrCacheTaken, os.Remove(f.Name()))}
	}
	if err := d.write(ctx, f); err != nil {
		if why := context.Cause(ctx); why != nil {
			err = why
		}
		return &backend.CacheError{Path: d.kept.Path, Err: errors.Join(err, os.Remove(f.Name()))}
	}
	d.kept.Removed, d.kept.Others = d.sweep()
	return nil
}

// write fills f and gives it its name.
func (d *device) write(ctx context.Context, f *os.File) error {
	m := d.arenas[backend.Weights]
	if err := f.Truncate(cacheHead + m.bytes); err != nil {
		return err
	}
	if err := unix.Fallocate(int(f.Fd()), 0, cacheHead, m.bytes); err != nil && err != unix.EOPNOTSUPP {
		return err
	}
	h := cacheHeader{key: d.cacheKey, made: d.cacheMade, bytes: m.bytes}
	for at := int64(0); at < m.bytes; at += cacheChunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := m.slice(at, min(cacheChunk, m.bytes-at))
		if _, err := f.WriteAt(b, cacheHead+at); err != nil {
			return err
		}
		h.sums = append(h.sums, crc32.Checksum(b, castagnoli))
	}
	head := h.encode()
	if len(head) > cacheHead {
		return fmt.Errorf("weights of %d bytes have a header of %d", m.bytes, len(head))
	}
	if _, err := f.WriteAt(head, 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), d.kept.Path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(d.kept.Path))
	if err != nil {
		return nil // in place; a crash now may lose it, and nothing else
	}
	defer dir.Close()
	_ = dir.Sync() // as above
	return nil
}

// replaced reports whether the file came since this device was opened and has these
// weights: of several processes that start at once the first writes.
func (d *device) replaced() bool {
	f, err := os.Open(d.kept.Path)
	if err != nil {
		return false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || d.cacheSeen != nil && os.SameFile(d.cacheSeen, st) {
		return false
	}
	h, err := d.header(f)
	return err == nil && d.serves(h) && st.Size() == cacheHead+h.bytes
}

// draft opens the file beside path that is written, empty and locked. What a process left
// there that was killed is written over. The lock is of the file that has the name now: one
// that became path meanwhile is somebody's weights.
func draft(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".part", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, reason(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, backend.ErrCacheTaken
	}
	mine, err := f.Stat()
	named, err2 := os.Lstat(f.Name())
	if err != nil || err2 != nil || !os.SameFile(mine, named) {
		f.Close()
		return nil, backend.ErrCacheTaken
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, reason(err)
	}
	return f, nil
}

// writable says whether Keep could write the file, by beginning it.
func (d *device) writable() error {
	f, err := draft(d.kept.Path)
	switch {
	case err == backend.ErrCacheTaken:
		return nil
	case err != nil:
		return &backend.CacheError{Path: d.kept.Path, Err: err}
	}
	err = os.Remove(f.Name())
	if err = errors.Join(err, f.Close()); err != nil {
		return &backend.CacheError{Path: d.kept.Path, Err: err}
	}
	return nil
}

// reason is an error without the operation and the path.
func reason(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
