package speculate

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
)

// table is a hash table of the n-grams of one length, with open addressing. A slot holds the
// position where an n-gram ends; its key is the tokens before that position.
type table struct {
	slots []int32 // 0: free
	used  int
}

// first returns the position where the n-gram at the end of tokens, whose hash is h, ended for
// the first time. If that is here, it adds the position and returns 0.
func (t *table) first(tokens []int32, n int, h uint64) int32 {
	if 2*(t.used+1) > len(t.slots) {
		t.grow(tokens, n)
	}
	end := len(tokens)
	mask := uint64(len(t.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		at := int(t.slots[i])
		if at == 0 {
			t.slots[i] = int32(end)
			t.used++
			return 0
		}
		if slices.Equal(tokens[at-n:at], tokens[end-n:]) {
			return int32(at)
		}
	}
}

// grow doubles the table.
func (t *table) grow(tokens []int32, n int) {
	old := t.slots
	t.slots = make([]int32, max(16, 2*len(old)))
	mask := uint64(len(t.slots) - 1)
	var key [4 * MaxNGram]byte
	for _, at := range old {
		if at == 0 {
			continue
		}
		for k, id := range tokens[int(at)-n : at] {
			binary.LittleEndian.PutUint32(key[4*k:], uint32(id))
		}
		i := maphash.Bytes(seed, key[:4*n]) & mask
		for t.slots[i] != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = at
	}
}
