package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"
)

// file is one open weight file and its read-only mapping.
type file struct {
	path string
	f    *os.File
	data []byte // the whole file, mapped read-only
}

func openFile(path string) (*file, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.Size() == 0 {
		err = fault(path, "", "is empty")
	}
	if err == nil && int64(int(st.Size())) != st.Size() {
		err = fault(path, "", "has %d bytes, more than this machine can map", st.Size())
	}
	var data []byte
	if err == nil {
		if data, err = mapFile(f, int(st.Size())); errors.Is(err, syscall.ENOMEM) {
			err = &Error{File: path, Msg: fmt.Sprintf("has %d bytes, more than this process may still map: %v; raise the limit on its address space (ulimit -v)", st.Size(), err), Err: err}
		}
	}
	if err != nil {
		f.Close()
		return nil, failed(path, "", err)
	}
	return &file{path: path, f: f, data: data}, nil
}

func (f *file) close() error {
	err := unmapFile(f.data)
	f.data = nil
	if e := f.f.Close(); err == nil {
		err = e
	}
	return err
}

// readAt fills dst by reading the file, not through the mapping. The bytes never count as resident
// memory of this process, and a truncated file is an error instead of a fault.
func (f *file) readAt(dst []byte, off int64) error {
	if _, err := f.f.ReadAt(dst, off); err != nil {
		return &Error{File: f.path, Msg: "changed or unreadable while it was open: " + err.Error(), Err: err}
	}
	return nil
}

// catchFault runs fn, which reads mapped bytes of path, and returns an *Error if the file was
// truncated under its mapping; without it the fault would crash the process.
func catchFault(path string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if _, ok := r.(interface{ Addr() uintptr }); !ok {
			panic(r)
		}
		err = fault(path, "", "changed or unreadable while it was mapped")
	}()
	return fn()
}

// openRegular opens a regular file, and refuses others because reading them could block or never
// end.
func openRegular(path string) (*os.File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, openFailed(path, err)
	}
	if !st.Mode().IsRegular() {
		return nil, fault(path, "", "is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, openFailed(path, err)
	}
	return f, nil
}

// readSmall returns a text file of at most limit bytes.
func readSmall(path string, limit int64) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, openFailed(path, err)
	}
	if int64(len(b)) > limit {
		return nil, fault(path, "", "is larger than the limit of %d bytes", limit)
	}
	return b, nil
}

func openFailed(path string, err error) *Error {
	msg := err.Error()
	if pe, ok := err.(*os.PathError); ok {
		msg = pe.Err.Error()
	}
	return &Error{File: path, Msg: msg, Err: err}
}
