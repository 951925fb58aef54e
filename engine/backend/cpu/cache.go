//go:build cgo && linux

package cpu

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"vapp.dev/engine/backend"
)

// errNoCache is why nothing is mapped at the first start.
var errNoCache = errors.New("there is no file yet")

// useCache maps the file of c as the Weights arena if it is whole and of these weights.
// Else the arena stays empty, and d.kept says why.
func (d *device) useCache(c backend.Cache) error {
	if c.Dir == "" || d.r.Arenas[backend.Weights] == 0 {
		return nil
	}
	begin := time.Now()
	d.kept.Path = d.layout.CacheFile(c, d.r)
	d.cacheKey, d.cacheMade, d.cacheStem, d.cacheOwn = d.layout.cacheKey(c, d.r), madeOf(c), c.Stem, !c.Shared
	m, err := d.mapCache(d.kept.Path)
	d.kept.Took = time.Since(begin)
	if err == nil {
		d.arenas[backend.Weights], d.kept.Mapped = m, true
		return nil
	}
	d.kept.Why = err.Error()
	if c.Must {
		return d.writable()
	}
	return nil
}

// mapCache maps and verifies a file: all of it, on all threads, since every page has to be
// brought into this process anyway.
func (d *device) mapCache(path string) (arena, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return arena{}, errNoCache
	} else if err != nil {
		return arena{}, err
	}
	defer f.Close() // a mapping needs no descriptor
	n := d.r.Arenas[backend.Weights]
	st, err := f.Stat()
	switch {
	case err != nil:
		return arena{}, err
	case !st.Mode().IsRegular():
		return arena{}, errors.New("it is no regular file")
	}
	d.cacheSeen = st
	h, err := d.header(f)
	switch {
	case err != nil:
		return arena{}, err
	case !d.serves(h):
		return arena{}, errors.New("it is stale: the checkpoint, the profile or vapp has changed since")
	case st.Size() != cacheHead+n:
		return arena{}, fmt.Errorf("it is torn: it has %d bytes of %d", st.Size(), cacheHead+n)
	}
	m, err := mapFile(f, cacheHead, n, d.layout.unit)
	if err != nil {
		return arena{}, err
	}
	if err := d.verify(m, h.sums); err != nil {
		return arena{}, errors.Join(err, m.unmap())
	}
	return m, nil
}

// header reads what a file says of itself.
func (d *device) header(f *os.File) (cacheHeader, error) {
	head := make([]byte, min(int64(cacheFixed)+4*chunks(d.r.Arenas[backend.Weights])+4, cacheHead))
	k, err := io.ReadFull(f, head)
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return cacheHeader{}, err
	}
	return parseCache(head[:k])
}

// serves reports whether a file with that header has the weights of this device.
func (d *device) serves(h cacheHeader) bool {
	return h.key == d.cacheKey && h.bytes == d.r.Arenas[backend.Weights]
}

// mapFile maps n bytes of f from off on, read-only, at a multiple of unit.
func mapFile(f *os.File, off, n, unit int64) (arena, error) {
	m, err := mapAligned(n, unit, unix.PROT_NONE, unix.MAP_NORESERVE)
	if err != nil {
		return arena{}, err
	}
	if _, err := unix.MmapPtr(int(f.Fd()), off, m.at, uintptr(n), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		return arena{}, errors.Join(err, m.unmap())
	}
	unix.Madvise(m.slice(0, n), unix.MADV_HUGEPAGE) // where the file system has large pages
	return m, nil
}

// verify brings every page into this process and compares the sums of the chunks.
func (d *device) verify(m arena, sums []uint32) error {
	return d.share(len(sums), func(i int) error { return verifyChunk(m, int64(i), sums[i]) })
}

// verifyChunk compares a chunk with its sum. A file that shrinks meanwhile is an error.
func verifyChunk(m arena, chunk int64, want uint32) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if _, ok := r.(interface{ Addr() uintptr }); !ok {
			panic(r)
		}
		err = fmt.Errorf("it is torn: chunk %d cannot be read", chunk)
	}()
	b := m.slice(chunk*cacheChunk, min(cacheChunk, m.bytes-chunk*cacheChunk))
	unix.Madvise(b, unix.MADV_POPULATE_READ) // in one go; a system older than 5.14 faults page by page
	if crc32.Checksum(b, castagnoli) != want {
		return fmt.Errorf("it is torn: chunk %d of %d bytes has another sum than when it was written", chunk, cacheChunk)
	}
	return nil
}

// Kept is how the Weights arena came to be.
func (d *device) Kept() backend.CacheUse { return d.kept }
