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

// errNoCache is the reason not to load at the first start.
var errNoCache = errors.New("there is no file yet")

// useCache reads the file of c into the Weights arena if it is complete and has these
// weights. Otherwise the arena stays unmapped, and d.cacheUse has the reason.
func (d *device) useCache(c backend.Cache) error {
	if c.Dir == "" || d.r.Arenas[backend.Weights] == 0 {
		return nil
	}
	begin := time.Now()
	d.nameCache(c)
	m, err := d.loadCache(d.cacheUse.Path)
	d.cacheUse.Took = time.Since(begin)
	if err == nil {
		d.arenas[backend.Weights], d.cacheUse.Loaded = m, true
		return nil
	}
	d.cacheUse.Why = err.Error()
	if c.Must {
		return d.writable()
	}
	return nil
}

// nameCache sets the file's path and what identifies it.
func (d *device) nameCache(c backend.Cache) {
	d.cacheUse.Path = d.layout.CacheFile(c, d.r)
	d.cacheKey, d.cacheMade, d.cacheStem, d.cacheOwn = d.layout.cacheKey(c, d.r), madeOf(c), c.Stem, !c.Shared
}

// errInMemory is the reason not to load weights that another device packed.
var errInMemory = errors.New("the weights were in memory")

// keepCache is useCache of a device with the weights of another. It reads nothing. There is nothing to write either
// if the file is complete and has these weights.
func (d *device) keepCache(c backend.Cache) error {
	if c.Dir == "" || d.r.Arenas[backend.Weights] == 0 {
		return nil
	}
	d.nameCache(c)
	st, ok := d.present()
	if d.cacheSeen = st; ok {
		d.cacheUse = backend.CacheUse{}
		return nil
	}
	d.cacheUse.Why = errInMemory.Error()
	if c.Must {
		return d.writable()
	}
	return nil
}

// loadCache returns an arena with the weights of a file, read and verified on all threads.
// The memory is private: later changes of the file change no weight.
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
		return arena{}, errors.New("it is not a regular file")
	}
	d.cacheSeen = st
	h, err := d.header(f)
	switch {
	case err != nil:
		return arena{}, err
	case !d.serves(h):
		return arena{}, errors.New("it is stale: the checkpoint, the profile or vapp has changed since")
	case st.Size() != cacheHead+n:
		return arena{}, fmt.Errorf("truncated: %d of %d bytes", st.Size(), cacheHead+n)
	}
	m, err := mapArena(backend.Weights, n, d.layout.unit)
	if err != nil {
		return arena{}, err
	}
	if err := d.place(backend.Weights, m); err != nil {
		return arena{}, errors.Join(err, m.unmap())
	}
	if err := d.share(len(h.sums), func(i int) error { return loadChunk(f, m, int64(i), h.sums[i]) }); err != nil {
		return arena{}, errors.Join(err, m.unmap()) // unmapped, because Pack needs zeros between weights
	}
	return m, nil
}

// header reads the header of a cache file.
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

// cacheRead is how many bytes are read at a time: few enough to be in the processor's cache
// when their checksum is computed.
const cacheRead = 256 << 10

// loadChunk makes a chunk of m resident, reads it from f and verifies its checksum.
func loadChunk(f *os.File, m arena, chunk int64, want uint32) error {
	from := chunk * cacheChunk
	n := min(cacheChunk, m.bytes-from)
	if err := makeResident(m.slice(from, n)); err != nil {
		return err
	}
	var sum uint32
	for at := from; at < from+n; at += cacheRead {
		b := m.slice(at, min(cacheRead, from+n-at))
		if _, err := f.ReadAt(b, cacheHead+at); err == io.EOF {
			return fmt.Errorf("truncated: the file ends in chunk %d, at byte %d", chunk, cacheHead+at)
		} else if err != nil {
			return reason(err)
		}
		sum = crc32.Update(sum, castagnoli, b)
	}
	if sum != want {
		return fmt.Errorf("damaged: wrong checksum of chunk %d, of %d bytes", chunk, cacheChunk)
	}
	return nil
}

// CacheUse implements backend.CacheWriter.
func (d *device) CacheUse() backend.CacheUse { return d.cacheUse }
