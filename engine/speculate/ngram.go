// Package speculate guesses how a sequence goes on, from its own tokens. It deals in
// integers only: what comes of a guess is decided by the step that verifies it.
package speculate

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
)

// NGram is prompt lookup: the longest n-gram at the sequence's end, of Min to Max
// tokens, that occurs before is looked up where it occurs first, and what follows
// there is proposed (vLLM's method ngram). The zero value proposes nothing.
type NGram struct{ Min, Max int }

// MaxNGram is the longest n-gram that is looked up.
const MaxNGram = 32

// OptionError says which bound is wrong, in the profile's words.
type OptionError struct {
	Option string
	Value  int
	Want   string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("speculative decoding: %s is %d, want %s", e.Option, e.Value, e.Want)
}

// Validate says what is wrong, as an *OptionError.
func (g NGram) Validate() error {
	switch {
	case g == NGram{}:
		return nil
	case g.Max < 1 || g.Max > MaxNGram:
		return &OptionError{"promptLookupMax", g.Max, fmt.Sprintf("1 to %d tokens", MaxNGram)}
	case g.Min < 1 || g.Min > g.Max:
		return &OptionError{"promptLookupMin", g.Min, fmt.Sprintf("1 to promptLookupMax, %d", g.Max)}
	}
	return nil
}

// TokenBytes bounds what an Index takes for each token: an entry of four bytes for
// each length of n-gram, in tables at least a quarter full. Small tables have
// 16 entries each.
func (g NGram) TokenBytes() int64 {
	if g.Max == 0 {
		return 0
	}
	return 16 * int64(g.Max-g.Min+1)
}

// Index is the n-grams of one sequence: where each ends that occurs there, the first
// time. A token costs Max−Min+1 hashes whatever the sequence's length; the tokens
// that a sequence begins with are read little by little (Read's most), and until all
// have been the sequence has no proposals. A table that is half full is made anew at
// twice the size, once for every doubling of the sequence.
type Index struct {
	grams  NGram
	tables []table // by length, from Min
	read   int     // tokens in the tables
	// found is, by length, where the n-gram at the end of what was read ended first; 0:
	// nowhere before.
	found []int32
	buf   [4 * MaxNGram]byte
}

// seed makes hashes that a request cannot foresee. No proposal depends on it.
var seed = maphash.MakeSeed()

// NewIndex makes the index of a sequence, nil for the zero NGram. It panics unless
// g.Validate is nil.
func NewIndex(g NGram) *Index {
	if err := g.Validate(); err != nil {
		panic(err)
	}
	if g == (NGram{}) {
		return nil
	}
	n := g.Max - g.Min + 1
	return &Index{grams: g, tables: make([]table, n), found: make([]int32, n)}
}

// Read takes up to most of the tokens that were not read before and returns how
// many. A sequence's tokens may be appended to, never changed.
func (x *Index) Read(tokens []int32, most int) int {
	n := max(0, min(len(tokens)-x.read, most))
	for range n {
		x.read++
		x.add(tokens[:x.read])
	}
	return n
}

// Len is how many tokens were read.
func (x *Index) Len() int { return x.read }

// add looks up the n-grams at the end of tokens, and keeps those that are new.
func (x *Index) add(tokens []int32) {
	clear(x.found)
	longest := min(x.grams.Max, len(tokens))
	for i, id := range tokens[len(tokens)-longest:] {
		binary.LittleEndian.PutUint32(x.buf[4*i:], uint32(id))
	}
	for n := x.grams.Min; n <= longest; n++ {
		h := maphash.Bytes(seed, x.buf[4*(longest-n):4*longest])
		x.found[n-x.grams.Min] = x.tables[n-x.grams.Min].first(tokens, n, h)
	}
}

// Propose appends to dst what followed the first occurrence of the longest known
// n-gram at the end of tokens: up to k tokens of tokens. Nothing is appended where
// there is none, or while tokens were not all read.
func (x *Index) Propose(dst, tokens []int32, k int) []int32 {
	if x.read != len(tokens) || k <= 0 {
		return dst
	}
	for i := len(x.found) - 1; i >= 0; i-- {
		if at := int(x.found[i]); at > 0 {
			return append(dst, tokens[at:min(at+k, len(tokens))]...)
		}
	}
	return dst
}
