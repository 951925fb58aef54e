//go:build unix

package checkpoint

import (
	"os"

	"golang.org/x/sys/unix"
)

func mapFile(f *os.File, size int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
}

func unmapFile(data []byte) error { return unix.Munmap(data) }

// prefetch asks the kernel to read b ahead, front to back.
func prefetch(b []byte) {
	b = pages(b)
	if len(b) > 0 {
		// A kernel that ignores the advice only loses speed.
		_ = unix.Madvise(b, unix.MADV_SEQUENTIAL)
		_ = unix.Madvise(b, unix.MADV_WILLNEED)
	}
}

// drop removes the pages of b from this process.
func drop(b []byte) error {
	if b = pages(b); len(b) == 0 {
		return nil
	}
	return unix.Madvise(b, unix.MADV_DONTNEED)
}
