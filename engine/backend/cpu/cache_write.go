//go:build cgo && linux

package cpu

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"vapp.dev/engine/backend"
)

var _ backend.CacheWriter = (*device)(nil)

// WriteCache writes header and arena to a temporary file and renames it, so that only
// complete files have the final name. Of several processes, one writes; of several devices with the same weights, one
// after the other does, unless the file is written by then.
func (d *device) WriteCache(ctx context.Context) error {
	if d.cacheUse.Path == "" || d.cacheUse.Loaded {
		return nil
	}
	select {
	case d.shared.writing <- struct{}{}:
		defer func() { <-d.shared.writing }()
	case <-ctx.Done():
		return &backend.CacheError{Path: d.cacheUse.Path, Err: context.Cause(ctx)}
	}
	if d.shared.written == d.cacheUse.Path {
		return nil
	}
	f, err := draft(d.cacheUse.Path)
	if err != nil {
		return &backend.CacheError{Path: d.cacheUse.Path, Err: err}
	}
	defer f.Close() // releases the lock
	if d.replaced() {
		return &backend.CacheError{Path: d.cacheUse.Path, Err: errors.Join(backend.ErrCacheTaken, os.Remove(f.Name()))}
	}
	if err := d.write(ctx, f); err != nil {
		if why := context.Cause(ctx); why != nil {
			err = why
		}
		return &backend.CacheError{Path: d.cacheUse.Path, Err: errors.Join(err, os.Remove(f.Name()))}
	}
	d.shared.written = d.cacheUse.Path
	d.cacheUse.Removed, d.cacheUse.Others = d.sweep()
	return nil
}

// write fills f and renames it to its final name.
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
	if err := os.Rename(f.Name(), d.cacheUse.Path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(d.cacheUse.Path))
	if err != nil {
		return nil // the file is in place; only a crash now may lose it
	}
	defer dir.Close()
	_ = dir.Sync() // as above
	return nil
}

// replaced reports whether another process wrote the file since this device was opened, and
// it has these weights. If several processes start at once, the first one writes.
func (d *device) replaced() bool {
	st, ok := d.present()
	return ok && (d.cacheSeen == nil || !os.SameFile(d.cacheSeen, st))
}

// present reports whether the file is complete and has these weights; st is nil if there is none.
func (d *device) present() (st fs.FileInfo, ok bool) {
	f, err := os.OpenFile(d.cacheUse.Path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	if st, err = f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, false
	}
	h, err := d.header(f)
	return st, err == nil && d.serves(h) && st.Size() == cacheHead+h.bytes
}

// draft opens the temporary file beside path, empty and locked. It overwrites the file of a
// process that was killed. It fails if the locked file no longer has the name: another
// process renamed it to path, so it has valid weights.
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

// writable returns an error unless WriteCache could create its file.
func (d *device) writable() error {
	f, err := draft(d.cacheUse.Path)
	switch {
	case err == backend.ErrCacheTaken:
		return nil
	case err != nil:
		return &backend.CacheError{Path: d.cacheUse.Path, Err: err}
	}
	err = os.Remove(f.Name())
	if err = errors.Join(err, f.Close()); err != nil {
		return &backend.CacheError{Path: d.cacheUse.Path, Err: err}
	}
	return nil
}

// reason returns the cause of an error without the operation and the path.
func reason(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
