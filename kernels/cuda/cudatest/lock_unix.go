//go:build unix

package cudatest

import (
	"os"
	"syscall"
)

// lock takes the lock of a file, which it makes, and returns what gives it back. The kernel gives it
// back too if the process ends.
func lock(path string) (free func(), err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return func() { f.Close() }, nil
}
