package checkpoint

import (
	"os"
	"unsafe"
)

// pages extends b, a part of a mapping, down to the start of its first page; the kernel rounds the
// end up.
func pages(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	p := unsafe.SliceData(b)
	back := int(uintptr(unsafe.Pointer(p)) % uintptr(os.Getpagesize()))
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(p), -back)), len(b)+back)
}
