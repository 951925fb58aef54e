//go:build unix

package hub

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// freeBytes returns the bytes that this user can still write on the disk of dir.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// acquire locks the file at path with flock, as huggingface_hub does, and calls waits if it has to
// wait. On file systems without locks it returns without a lock; blobs are still renamed to their
// names only when complete.
func acquire(ctx context.Context, path string, waits func()) (release func(), err error) {
	for first := true; ; first = false {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o664)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOLCK):
			return func() { f.Close() }, nil
		case err == nil && same(f, path):
			return func() { f.Close() }, nil
		case err != nil && !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			f.Close()
			return nil, err
		}
		f.Close()
		if first && err != nil {
			waits()
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// same reports whether path still names f: the previous holder of the lock may have removed the
// file.
func same(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}
