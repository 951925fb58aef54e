//go:build cgo && linux

package cpu

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"vapp.dev/engine/backend"
)

// swapFile is the Swap arena: an unnamed file that disappears with the process. All its
// blocks are allocated when it is opened. It is accessed by read and write, not mapped, so
// that a failing disk gives an error and not a signal. A nil swapFile is empty.
type swapFile struct {
	f     *os.File
	bytes int64
}

// openSwap creates the file in dir and allocates its blocks. The error is a
// *backend.SwapError.
func openSwap(dir string, n int64) (*swapFile, error) {
	if n == 0 {
		return nil, nil
	}
	if dir == "" {
		dir = largeFiles()
	}
	fail := func(free int64, err error) (*swapFile, error) {
		return nil, &backend.SwapError{Dir: dir, Need: n, Free: free, Err: err}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fail(0, err)
	}
	if fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC {
		return fail(0, errors.New("the directory is in memory (tmpfs)"))
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < n {
		return fail(free, nil)
	}
	f, err := nameless(dir)
	if err != nil {
		return fail(0, err)
	}
	if err := allocate(f, n); err != nil {
		f.Close()
		return fail(0, err)
	}
	return &swapFile{f, n}, nil
}

// largeFiles returns the system's directory for large temporary files: $TMPDIR, else
// /var/tmp, because /tmp is in memory on many systems.
func largeFiles() string {
	if dir := os.Getenv("TMPDIR"); dir != "" {
		return dir
	}
	if s, err := os.Stat("/var/tmp"); err == nil && s.IsDir() {
		return "/var/tmp"
	}
	return os.TempDir()
}

// nameless returns a new file that no directory lists.
func nameless(dir string) (*os.File, error) {
	if fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600); err == nil {
		return os.NewFile(uintptr(fd), dir+"/(swap)"), nil
	}
	f, err := os.CreateTemp(dir, "vapp-swap-")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// allocate allocates n bytes of f on disk. If the file system does not support that, it
// writes them.
func allocate(f *os.File, n int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, n)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < n; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), n-at)], at); err != nil {
			return err
		}
	}
	return nil
}

func (s *swapFile) size() int64 {
	if s == nil {
		return 0
	}
	i, err := s.f.Stat()
	if err != nil {
		return 0
	}
	return i.Size()
}

func (s *swapFile) close() error {
	if s == nil {
		return nil
	}
	return s.f.Close()
}

// Move waits for all launches, then copies pages in order.
func (d *device) Move(moves []backend.PageMove) error {
	if d.pool == nil {
		return errClosed
	}
	d.drain()
	kv := d.arenas[backend.KV]
	for _, m := range moves {
		if err := m.Check(d.r.Classes, kv.bytes, d.r.Arenas[backend.Swap]); err != nil {
			return fmt.Errorf("backend %s: %w", name, err)
		}
		c := d.r.Classes[m.Class]
		page, at := kv.slice(c.Address(m.Page), c.PageBytes()), c.Address(m.Slot)
		var err error
		if m.Out {
			_, err = d.swap.f.WriteAt(page, at)
		} else {
			_, err = d.swap.f.ReadAt(page, at)
		}
		if err != nil {
			return fmt.Errorf("backend %s: swap space: %w", name, err)
		}
	}
	return nil
}
