//go:build cgo && linux

package cpu

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"vapp.dev/engine/backend"
)

// errNoCache is why nothing is loaded at the first start.
var errNoCache = errors.New("there is no file yet")

// useCache reads the file of c into the Weights arena if it is whole and of these weights.
// Else the arena stays empty, and d.kept says why.
func (d *device) useCache(c backend.Cache) error {
	if c.Dir == "" || d.r.Arenas[backend.Weights] == 0 {
		return nil
	}
	begin := time.Now()
	d.kept.Path = d.layout.CacheFile(c, d.r)
	d.cacheKey, d.cacheMade, d.cacheStem, d.cacheOwn = d.layout.cacheKey(c, d.r), madeOf(c), c.Stem, !c.Shared
	m, err := d.loadCache(d.kept.Path)
	d.kept.Took = time.Since(begin)
	if err == nil {
		d.arenas[backend.Weights], d.kept.Loaded = m, true
		return nil
	}
	d.kept.Why = err.Error()
	if c.Must {
		return d.writable()
	}
	return nil
}

// loadCache returns an arena with the weights in a file, read and verified on all threads. The
// memory is this process's own: what happens to the file afterwards changes no weight.
func (d *device) loadCache(path string) (arena, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return arena{}, errNoCache
	} else if err != nil {
		return arena{}, err
	}
	defer f.Close()
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
	m, err := mapArena(backend.Weights, n, d.layout.unit)
	if err != nil {
		return arena{}, err
	}
	if err := d.share(len(h.sums), func(i int) error { return loadChunk(f, m, int64(i), h.sums[i]) }); err != nil {
		return arena{}, errors.Join(err, m.unmap()) // not packed into: bytes between weights must be zero
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

// cacheRead is how many bytes are read at a time: they are still in a processor's own cache when
// their sum is computed.
const cacheRead = 256 << 10

// loadChunk reads a chunk of f into its place in m and compares the sum of what is there.
func loadChunk(f *os.File, m arena, chunk int64, want uint32) error {
	from := chunk * cacheChunk
	n := min(cacheChunk, m.bytes-from)
	if err := back(m.slice(from, n)); err != nil {
		return err
	}
	var sum uint32
	for at := from; at < from+n; at += cacheRead {
		b := m.slice(at, min(cacheRead, from+n-at))
		if _, err := f.ReadAt(b, cacheHead+at); err == io.EOF {
			return fmt.Errorf("it is torn: it ends in chunk %d, byte %d", chunk, cacheHead+at)
		} else if err != nil {
			return reason(err)
		}
		sum = crc32.Update(sum, castagnoli, b)
	}
	if sum != want {
		return fmt.Errorf("it is torn: chunk %d of %d bytes has another sum than when it was written", chunk, cacheChunk)
	}
	return nil
}

// Kept is how the Weights arena came to be.
func (d *device) CacheUse() backend.CacheUse { return d.kept }
