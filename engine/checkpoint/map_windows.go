package checkpoint

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

func mapFile(f *os.File, size int) ([]byte, error) {
	h, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, err
	}
	defer windows.CloseHandle(h) // the view keeps the mapping alive
	addr, err := windows.MapViewOfFile(h, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return nil, err
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), size), nil
}

func unmapFile(data []byte) error {
	return windows.UnmapViewOfFile(uintptr(unsafe.Pointer(unsafe.SliceData(data))))
}

// prefetch does nothing: Windows reads a mapping ahead automatically.
func prefetch([]byte) {}

// drop removes the pages of b from this process. Unlocking pages that are not locked removes them
// from the working set, and returns an error that says they were not locked.
func drop(b []byte) error {
	if b = pages(b); len(b) == 0 {
		return nil
	}
	err := windows.VirtualUnlock(uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if err == windows.ERROR_NOT_LOCKED {
		return nil
	}
	return err
}
