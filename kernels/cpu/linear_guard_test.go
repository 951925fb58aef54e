//go:build linux && cgo

package cpu

import (
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// guarded returns n bytes between two inaccessible pages, ending right before the second.
func guarded(tb testing.TB, n int) []byte {
	tb.Helper()
	page := os.Getpagesize()
	body := (n + page - 1) / page * page
	all, err := syscall.Mmap(-1, 0, body+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = syscall.Munmap(all) })
	for _, edge := range [][]byte{all[:page], all[page+body:]} {
		if err := syscall.Mprotect(edge, syscall.PROT_NONE); err != nil {
			tb.Fatal(err)
		}
	}
	return all[page+body-n : page+body : page+body]
}

// guardedFloats returns guarded memory for n floats.
func guardedFloats(tb testing.TB, n int) []float32 {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&guarded(tb, 4*n)[0])), n)
}
