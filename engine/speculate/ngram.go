// Package speculate proposes the next tokens of a sequence by n-gram lookup in its own tokens.
// It must not know sequences, steps or whether a proposal is accepted: it handles token ids
// only. Start reading at Index in ngram.go.
package speculate

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
)

// NGram are the options of prompt lookup, vLLM's method ngram. Of the n-grams of Min to Max
// tokens at the end of the sequence, it takes the longest one that has occurred before. It
// proposes the tokens that followed the first occurrence. The zero value proposes nothing.
type NGram struct{ Min, Max int }

// MaxNGram is the longest n-gram that is looked up.
const MaxNGram = 32

// OptionError reports an invalid bound, by the profile's field name.
type OptionError struct {
	Option string
	Value  int
	Want   string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("speculative decoding: %s is %d, want %s", e.Option, e.Value, e.Want)
}

// Validate checks the bounds. The error is an *OptionError.
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

// TokenBytes returns an upper bound of the memory of an Index for each token: an entry of four
// bytes for each length of n-gram, in tables that are at least a quarter full. Small tables
// have 16 entries each.
func (g NGram) TokenBytes() int64 {
	if g.Max == 0 {
		return 0
	}
	return 16 * int64(g.Max-g.Min+1)
}

// Index holds the n-grams of one sequence, with the position where each ended first. A token
// costs Max−Min+1 hashes, whatever the sequence's length. Read may take a long prompt in
// several calls; there are no proposals until all tokens were read. A table that is half full
// doubles its size, once for every doubling of the sequence.
type Index struct {
	grams  NGram
	tables []table // by length, from Min
	read   int     // number of tokens in the tables
	// found is, by length, the position where the n-gram at the end of the read tokens ended
	// first; 0: it is new.
	found []int32
	buf   [4 * MaxNGram]byte
}

// seed makes the hashes unpredictable for requests. Proposals do not depend on it.
var seed = maphash.MakeSeed()

// NewIndex returns the index of a sequence, nil for the zero NGram. It panics if g.Validate
// fails.
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

// Read adds up to most tokens that were not read before and returns how many it added. The
// tokens of a sequence may be appended to but never changed.
func (x *Index) Read(tokens []int32, most int) int {
	n := max(0, min(len(tokens)-x.read, most))
	for range n {
		x.read++
		x.add(tokens[:x.read])
	}
	return n
}

// Len returns how many tokens were read.
func (x *Index) Len() int { return x.read }

// add looks up the n-grams at the end of tokens and adds the new ones.
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

// Propose appends to dst up to k tokens that followed the first occurrence of the longest known
// n-gram at the end of tokens. It appends nothing if there is none or if not all tokens were
// read.
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
