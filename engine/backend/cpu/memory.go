//go:build cgo && linux

package cpu

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"vapp.dev/engine/backend"
)

// arena is memory mapped from the system.
type arena struct {
	at    unsafe.Pointer
	bytes int64
}

// mapArena maps n bytes, a multiple of unit, at a multiple of unit, and asks for huge
// pages. They are backed by populate, or by Pack.
func mapArena(a backend.Arena, n, unit int64) (arena, error) {
	if n == 0 {
		return arena{}, nil
	}
	m, err := mapAligned(n, unit, unix.PROT_READ|unix.PROT_WRITE, 0)
	if err != nil {
		return arena{}, fmt.Errorf("backend %s: %v arena of %d bytes: %w", name, a, n, err)
	}
	unix.Madvise(m.slice(0, n), unix.MADV_HUGEPAGE) // refused where huge pages are off: small ones do
	return m, nil
}

// mapAligned maps n bytes of no file at a multiple of unit.
func mapAligned(n, unit int64, prot, flags int) (arena, error) {
	room, err := unix.MmapPtr(-1, 0, nil, uintptr(n+unit), prot, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|flags)
	if err != nil {
		return arena{}, err
	}
	head := (unit - int64(uintptr(room))%unit) % unit
	m := arena{unsafe.Add(room, head), n}
	if head > 0 {
		err = unix.MunmapPtr(room, uintptr(head))
	}
	if err = errors.Join(err, unix.MunmapPtr(unsafe.Add(m.at, n), uintptr(unit-head))); err != nil {
		return arena{}, errors.Join(err, m.unmap())
	}
	return m, nil
}

// populateChunk is how much a thread has backed at a time: a call holds up whoever maps
// memory meanwhile.
const populateChunk = 16 << 20

// populate has every page backed, on all threads, so that what the plan counts is
// resident from the start: a page's first touch is the dearest part of a start, above all
// in a virtual machine whose host has to find it too. Weights are left to Pack, which
// touches them while they are in the cache, but for the end that no weight reaches.
func (d *device) populate() error {
	var chunks [][]byte
	for a, m := range d.arenas {
		if backend.Arena(a) == backend.Weights && d.kept.Loaded {
			continue
		}
		from := int64(0)
		if n := len(d.weights); backend.Arena(a) == backend.Weights && n > 0 {
			from = (d.weights[n-1].off + d.weights[n-1].Bytes) / d.layout.unit * d.layout.unit
		}
		for n := int64(0); from < m.bytes; from += n {
			n = min(populateChunk, m.bytes-from)
			chunks = append(chunks, m.slice(from, n))
		}
	}
	if err := d.share(len(chunks), func(i int) error { return back(chunks[i]) }); err != nil {
		return fmt.Errorf("backend %s: memory of the arenas: %w", name, err)
	}
	return nil
}

// share does n pieces of work on as many goroutines as the pool has threads, and returns
// an error of one; what a goroutine fails at is its last.
func (d *device) share(n int, do func(i int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, d.layout.threads)
	for t := range errs {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= n && errs[t] == nil; i = int(next.Add(1)) {
				errs[t] = do(i - 1)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// back has the pages of b backed.
func back(b []byte) error {
	err := unix.Madvise(b, unix.MADV_POPULATE_WRITE)
	if err != unix.EINVAL {
		return err
	}
	for i := 0; i < len(b); i += 4096 { // a system older than 5.14
		b[i] = 0
	}
	return nil
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
