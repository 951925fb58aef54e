package cpu

import (
	"bytes"
	"testing"
)

// FuzzCacheHeader: whatever a file begins with, it is refused or says what encode writes.
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

// TestCacheHeader says that a header with any bit turned is refused.
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
