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

// mapArena maps n bytes, a multiple of unit, at a multiple of unit, and requests huge pages.
// populate or Pack make the pages resident.
func mapArena(a backend.Arena, n, unit int64) (arena, error) {
	if n == 0 {
		return arena{}, nil
	}
	m, err := mapAligned(n, unit, unix.PROT_READ|unix.PROT_WRITE, 0)
	if err != nil {
		return arena{}, fmt.Errorf("backend %s: %v arena of %d bytes: %w", name, a, n, err)
	}
	unix.Madvise(m.slice(0, n), unix.MADV_HUGEPAGE) // fails if huge pages are off: small pages are used then
	return m, nil
}

// mapAligned maps n anonymous bytes at a multiple of unit.
func mapAligned(n, unit int64, prot, flags int) (arena, error) {
	mapped, err := unix.MmapPtr(-1, 0, nil, uintptr(n+unit), prot, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|flags)
	if err != nil {
		return arena{}, err
	}
	head := (unit - int64(uintptr(mapped))%unit) % unit
	m := arena{unsafe.Add(mapped, head), n}
	if head > 0 {
		err = unix.MunmapPtr(mapped, uintptr(head))
	}
	if err = errors.Join(err, unix.MunmapPtr(unsafe.Add(m.at, n), uintptr(unit-head))); err != nil {
		return arena{}, errors.Join(err, m.unmap())
	}
	return m, nil
}

// populateChunk is how many bytes one system call makes resident. During the call, other
// threads that map memory have to wait.
const populateChunk = 16 << 20

// populate makes every page resident, on all threads, so that the memory counted in the plan
// is in use from the start. The first access to a page is the slowest part of a start, above
// all in a virtual machine whose host has to allocate it too. Pack makes the pages of weights
// resident, because it writes them anyway; populate handles only the rest of that arena.
func (d *device) populate() error {
	var chunks [][]byte
	for a, m := range d.arenas {
		if backend.Arena(a) == backend.Weights && (d.cacheUse.Loaded || d.joined) {
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
	if err := d.share(len(chunks), func(i int) error { return makeResident(chunks[i]) }); err != nil {
		return fmt.Errorf("backend %s: memory of the arenas: %w", name, err)
	}
	return nil
}

// share calls do for 0 to n−1 on as many goroutines as the pool has threads, and returns the
// first error in goroutine order. A goroutine stops at its first error.
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

// makeResident makes the pages of b resident.
func makeResident(b []byte) error {
	err := unix.Madvise(b, unix.MADV_POPULATE_WRITE)
	if err != unix.EINVAL {
		return err
	}
	for i := 0; i < len(b); i += 4096 { // Linux before 5.14
		b[i] = 0
	}
	return nil
}

// slice returns n bytes from offset off.
func (m arena) slice(off, n int64) []byte {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Add(m.at, off)), n)
}

// address returns the address at offset off, as kernels take it.
func (m arena) address(off int64) uintptr { return uintptr(m.at) + uintptr(off) }

func (m *arena) unmap() error {
	if m.bytes == 0 {
		return nil
	}
	err := unix.MunmapPtr(m.at, uintptr(m.bytes))
	*m = arena{}
	return err
}
