// Package structuredtest has what tests of grammars share: a tokenizer with the markers of
// all dialects, and a check of token ids against a grammar. It must not ship in the binary
// and must not import package chat, whose tests use it.
// Start reading at Tokenizer.
package structuredtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/grammar"
	"vapp.dev/engine/tokenizer"
)

// EOS is the end-of-sequence token of Tokenizer.
const EOS = 256

// Tokenizer returns a tokenizer whose vocabulary is all bytes, EOS and, if special, the
// markers of all dialects as special tokens. specials are the ids of these.
func Tokenizer(t testing.TB, special bool) (tok *tokenizer.Tokenizer, specials map[string]int32) {
	t.Helper()
	markers := dialect.Markers()
	if !special {
		markers = nil
	}
	cfg := checkpoint.Config{VocabSize: EOS + 1 + len(markers), BosTokenID: -1}
	for i := range len(markers) + 1 {
		cfg.EosTokenIDs = append(cfg.EosTokenIDs, EOS+i)
	}
	b, err := checkpoint.SyntheticTokenizer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range markers {
		quoted, _ := json.Marshal(m) // a string
		b = bytes.ReplaceAll(b, fmt.Appendf(nil, `"<|eos_%d|>"`, i+1), quoted)
	}
	if tok, err = tokenizer.Load(b, tokenizer.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tok.Close)
	specials = map[string]int32{}
	for i, m := range markers {
		specials[m] = int32(EOS + 1 + i)
	}
	return tok, specials
}

// Follow takes ids with a grammar's state. It returns the index of the first id that the
// grammar refuses; −1 if it accepts all of them and then EOS.
func Follow(t testing.TB, st *grammar.State, ids []int32) int {
	t.Helper()
	mask := make([]uint32, 64)
	for i, id := range append(ids, EOS) {
		if st.Mask(mask) && mask[id/32]>>(id%32)&1 == 0 {
			return i
		}
		if id == EOS {
			break
		}
		_, ended, err := st.Take(id)
		if err != nil {
			t.Fatal(err)
		}
		if ended {
			if i+1 == len(ids) {
				break
			}
			return i + 1
		}
	}
	return -1
}
