package cpu

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"
)

// FuzzCacheHeader: parseCache rejects any bytes or returns a header that encodes to them.
func FuzzCacheHeader(f *testing.F) {
	good := cacheHeader{key: [32]byte{1, 2}, made: [32]byte{3}, bytes: cacheChunk + 5, sums: []uint32{7, 8}}.encode()
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte(cacheMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseCache(b)
		if err != nil {
			return
		}
		if out := h.encode(); !bytes.HasPrefix(b, out) || len(out) > cacheHead || chunks(h.bytes) != int64(len(h.sums)) {
			t.Errorf("a header of %d bytes in %d chunks is not what encode writes", h.bytes, len(h.sums))
		}
	})
}

// TestCacheHeader: a header with any bit flipped is rejected.
func TestCacheHeader(t *testing.T) {
	good := cacheHeader{key: [32]byte{1, 2}, made: [32]byte{3}, bytes: cacheChunk + 5, sums: []uint32{7, 8}}.encode()
	if h, err := parseCache(append(bytes.Clone(good), 9)); err != nil || h.bytes != cacheChunk+5 || h.sums[1] != 8 || h.made != [32]byte{3} || h.key != [32]byte{1, 2} {
		t.Fatalf("%+v, %v", h, err)
	}
	for bit := range len(good) * 8 {
		bad := bytes.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		if _, err := parseCache(bad); err == nil {
			t.Errorf("bit %d turned: no error", bit)
		}
	}
	for n := range good {
		if _, err := parseCache(good[:n]); err == nil {
			t.Errorf("cut to %d bytes: no error", n)
		}
	}
}

// TestCacheHeaderOfOthers: a valid header of another format or another chunk size is rejected
// with that reason.
func TestCacheHeaderOfOthers(t *testing.T) {
	good := cacheHeader{bytes: cacheChunk + 5, sums: []uint32{7, 8}}.encode()
	version, chunk := len(cacheMagic), len(cacheMagic)+4+32+32+8
	for at, want := range map[int]string{version: "it is of format", chunk: "chunks of"} {
		other := bytes.Clone(good)
		binary.LittleEndian.PutUint32(other[at:], binary.LittleEndian.Uint32(good[at:])+1)
		end := len(other) - 4
		binary.LittleEndian.PutUint32(other[end:], crc32.Checksum(other[:end], castagnoli))
		if _, err := parseCache(other); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("byte %d: %v, want %q", at, err, want)
		}
	}
}
