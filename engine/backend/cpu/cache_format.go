package cpu

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	kcpu "vapp.dev/kernels/cpu"
)

// The file of packed weights is a header in cacheHead bytes and then the Weights arena as it
// is in memory. cacheHead is a multiple of a huge page. Little endian:
//
//	magic [20]byte, version uint32, key [32]byte, made [32]byte,
//	bytes of the arena uint64, bytes of a chunk uint32, chunks uint32,
//	CRC-32C of each chunk [chunks]uint32, CRC-32C of the header so far uint32
const (
	cacheMagic   = "vapp packed weights\n"
	cacheVersion = 2
	cacheHead    = 2 << 20
	cacheChunk   = 16 << 20
	cacheFixed   = len(cacheMagic) + 4 + 32 + 32 + 8 + 4 + 4
	// packVersion is the version of Pack itself: converting, quantizing, the order of parts.
	packVersion = 1
)

// cacheHeader is the decoded header of a cache file.
type cacheHeader struct {
	key   [32]byte // digest of the weights and how they are packed
	made  [32]byte // digest of the checkpoint and the version alone
	bytes int64    // of the arena
	sums  []uint32 // CRC-32C of each chunk of it
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunks returns how many chunks n bytes have.
func chunks(n int64) int64 { return (n + cacheChunk - 1) / cacheChunk }

// encode returns the header as stored in the file.
func (h cacheHeader) encode() []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, cacheFixed+4*len(h.sums)+4), cacheMagic...)
	b = le.AppendUint32(b, cacheVersion)
	b = append(append(b, h.key[:]...), h.made[:]...)
	b = le.AppendUint64(b, uint64(h.bytes))
	b = le.AppendUint32(b, cacheChunk)
	b = le.AppendUint32(b, uint32(len(h.sums)))
	for _, s := range h.sums {
		b = le.AppendUint32(b, s)
	}
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// parseCache reads a header from the first bytes of a file, at most cacheHead.
func parseCache(b []byte) (cacheHeader, error) {
	le := binary.LittleEndian
	var h cacheHeader
	if len(b) < cacheFixed || !bytes.HasPrefix(b, []byte(cacheMagic)) {
		return h, fmt.Errorf("it is no file of packed weights")
	}
	rest := b[len(cacheMagic):]
	if v := le.Uint32(rest); v != cacheVersion {
		return h, fmt.Errorf("it is of format %d, not %d", v, cacheVersion)
	}
	copy(h.key[:], rest[4:])
	copy(h.made[:], rest[36:])
	rest = rest[68:]
	size, chunk, n := le.Uint64(rest), le.Uint32(rest[8:]), int64(le.Uint32(rest[12:]))
	if n > (cacheHead-int64(cacheFixed)-4)/4 || chunk != cacheChunk || size == 0 || size > uint64(n)*cacheChunk || chunks(int64(size)) != n {
		return h, fmt.Errorf("its header has %d bytes in %d chunks of %d", size, n, chunk)
	}
	h.bytes = int64(size)
	end := int64(cacheFixed) + 4*n
	if int64(len(b)) < end+4 || crc32.Checksum(b[:end], castagnoli) != le.Uint32(b[end:]) {
		return h, fmt.Errorf("its header is damaged")
	}
	h.sums = make([]uint32, n)
	for i := range h.sums {
		h.sums[i] = le.Uint32(b[cacheFixed+4*i:])
	}
	return h, nil
}

// identity returns a digest of everything that determines how a reservation's weights are
// packed: parts, formats, kernels, and numbers that the model code computed.
func (l layout) identity(r backend.Reservation) [32]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s %v %d\n", l.variant, l.int8, r.Arenas[backend.Weights])
	for i, w := range r.Weights {
		fmt.Fprintf(h, "%+v %+v\n", w, r.Packed[i])
	}
	return [32]byte(h.Sum(nil))
}

// cacheKey returns a digest of identity, the versions of the packing code, and the
// checkpoint.
func (l layout) cacheKey(c backend.Cache, r backend.Reservation) [32]byte {
	h := sha256.New()
	id := l.identity(r)
	h.Write(id[:])
	h.Write(c.Key[:])
	fmt.Fprintf(h, "pack %d\n", packVersion)
	seen := map[kernels.Format]bool{}
	version := func(f kernels.Format) {
		if !seen[f] {
			seen[f] = true
			fmt.Fprintf(h, "%v %d\n", f, kcpu.PanelVersion(f))
		}
	}
	for i, p := range r.Packed {
		version(p.Format)
		for _, s := range r.Weights[i].Segments() {
			version(s.Source)
		}
	}
	return [32]byte(h.Sum(nil))
}

// madeOf returns a digest of the checkpoint and the versions of the packing code. No profile
// can use a file with another one.
func madeOf(c backend.Cache) [32]byte {
	h := sha256.New()
	h.Write(c.Key[:])
	fmt.Fprintf(h, "pack %d\n", packVersion)
	for f := range kernels.Format(1 << 6) {
		fmt.Fprintf(h, "%d ", kcpu.PanelVersion(f))
	}
	return [32]byte(h.Sum(nil))
}

// CacheFile returns the path of the cache file. The name depends on how the weights are
// packed, not on the checkpoint: when the checkpoint changes, its file is replaced.
func (l layout) CacheFile(c backend.Cache, r backend.Reservation) string {
	id := l.identity(r)
	return filepath.Join(c.Dir, c.Stem+"."+l.variant+"-"+hex.EncodeToString(id[:4])+".packed")
}
