package facts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// online returns the number of CPUs that the scheduler may use for this process.
func online() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err == nil {
		return set.Count()
	}
	return runtime.NumCPU()
}

const (
	readMost  = 64 << 20 // bytes of the model's file
	readChunk = 4 << 20
	readAlign = 4096 // of O_DIRECT
)

// readCold reads at most readMost bytes from the middle of a file, past the page cache: with
// O_DIRECT, or after the pages were dropped where the file system refuses that. It stops when ctx
// ends.
func readCold(ctx context.Context, path string) (n int64, took time.Duration, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) {
		f, err = os.Open(path)
	}
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	at := max(0, st.Size()-readMost) / 2 / readAlign * readAlign
	buf := aligned(readChunk)
	if n, took, err = readFrom(ctx, f, at, buf); !errors.Is(err, unix.EINVAL) {
		return n, took, err
	}
	plain, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer plain.Close()
	if err := unix.Fadvise(int(plain.Fd()), at, readMost, unix.FADV_DONTNEED); err != nil {
		return 0, 0, fmt.Errorf("fadvise: %w", err)
	}
	return readFrom(ctx, plain, at, buf)
}

func readFrom(ctx context.Context, f *os.File, at int64, buf []byte) (n int64, took time.Duration, err error) {
	begun := time.Now()
	for n < readMost && ctx.Err() == nil {
		k, err := f.ReadAt(buf, at+n)
		n += int64(k)
		if err == io.EOF {
			break
		} else if err != nil {
			return n, time.Since(begun), err
		}
	}
	return n, time.Since(begun), nil
}

// aligned returns a buffer whose address O_DIRECT accepts.
func aligned(size int) []byte {
	b := make([]byte, size+readAlign)
	skip := readAlign - int(uintptr(unsafe.Pointer(&b[0]))%readAlign)
	return b[skip : skip+size]
}
