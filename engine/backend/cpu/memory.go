//go:build cgo && linux

package cpu

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"vapp.dev/engine/backend"
)

// arena is memory mapped from the system.
type arena struct {
	at    unsafe.Pointer
	bytes int64
}

// mapArena maps n bytes, a multiple of unit, at a multiple of unit, asks for huge
// pages and has every page backed: what the plan counts is resident from the
// start.
func mapArena(a backend.Arena, n, unit int64) (arena, error) {
	if n == 0 {
		return arena{}, nil
	}
	fail := func(err error) (arena, error) {
		return arena{}, fmt.Errorf("backend %s: %v arena of %d bytes: %w", name, a, n, err)
	}
	room, err := unix.MmapPtr(-1, 0, nil, uintptr(n+unit), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fail(err)
	}
	head := (unit - int64(uintptr(room))%unit) % unit
	at := unsafe.Add(room, head)
	if head > 0 {
		if err := unix.MunmapPtr(room, uintptr(head)); err != nil {
			return fail(err)
		}
	}
	if err := unix.MunmapPtr(unsafe.Add(at, n), uintptr(unit-head)); err != nil {
		return fail(err)
	}
	m := arena{at, n}
	b := m.slice(0, n)
	unix.Madvise(b, unix.MADV_HUGEPAGE) // refused where huge pages are off: small ones do
	if err := unix.Madvise(b, unix.MADV_POPULATE_WRITE); err == unix.EINVAL {
		for i := int64(0); i < n; i += 4096 { // a system older than 5.14
			b[i] = 0
		}
	} else if err != nil {
		m.unmap()
		return fail(err)
	}
	return m, nil
}

// slice is n bytes from off on.
func (m arena) slice(off, n int64) []byte {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Add(m.at, off)), n)
}

// address is the place off bytes into the arena, as kernels take it.
func (m arena) address(off int64) uintptr { return uintptr(m.at) + uintptr(off) }

func (m *arena) unmap() error {
	if m.bytes == 0 {
		return nil
	}
	err := unix.MunmapPtr(m.at, uintptr(m.bytes))
	*m = arena{}
	return err
}
