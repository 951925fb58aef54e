//go:build cgo

package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// streamAll pushes ids one at a time and checks every piece.
func streamAll(t *testing.T, tok *Tokenizer, ids []int32, skip bool) string {
	t.Helper()
	s := tok.NewStream(skip)
	var out strings.Builder
	for _, id := range ids {
		piece := s.Push(id)
		if !utf8.ValidString(piece) {
			t.Fatalf("%v: piece %q is not UTF-8", ids, piece)
		}
		out.WriteString(piece)
	}
	out.WriteString(s.Flush())
	return out.String()
}

func checkStream(t *testing.T, tok *Tokenizer, ids []int32) {
	t.Helper()
	for _, skip := range []bool{false, true} {
		want, err := tok.Decode(ids, skip)
		if err != nil {
			t.Fatal(err)
		}
		if got := streamAll(t, tok, ids, skip); got != want {
			t.Fatalf("%v, skip %v:\n got %q\nwant %q", ids, skip, got, want)
		}
	}
}

func TestStreamTexts(t *testing.T) {
	all := rows(t)
	for _, kind := range []string{"bytelevel", "fallback", "wordpiece"} {
		tok := small(t, kind)
		for _, r := range all[kind+".tokenizer.json"] {
			checkStream(t, tok, r.IDs)
		}
	}
}

// TestStreamRandom decodes random ids: halves of characters, single bytes, special tokens, ids
// without a token. Three in four are bytes, the most error-prone kind.
func TestStreamRandom(t *testing.T) {
	for _, kind := range []string{"bytelevel", "fallback"} {
		tok := small(t, kind)
		var odd []int32
		for id := range int32(tok.VocabSize()) {
			if b := tok.TokenBytes(id); len(b) == 1 && b[0] >= 0x80 {
				odd = append(odd, id)
			}
		}
		if len(odd) < 128 {
			t.Fatalf("%s: %d tokens of one high byte", kind, len(odd))
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for range 3000 {
			ids := make([]int32, 1+rng.IntN(12))
			for i := range ids {
				ids[i] = odd[rng.IntN(len(odd))]
				if rng.IntN(4) == 0 {
					ids[i] = rng.Int32N(int32(tok.VocabSize() + 3))
				}
			}
			checkStream(t, tok, ids)
		}
	}
}

func TestStreamHoldsBytes(t *testing.T) {
	tok := small(t, "bytelevel")
	var ids []int32
	for _, b := range []string{"ð", "Ł", "Ļ", "Ĥ"} { // F0 9F 99 82: one smile
		id, ok := tok.ID(b)
		if !ok {
			t.Fatalf("no token for the byte %s", b)
		}
		ids = append(ids, id)
	}
	s := tok.NewStream(false)
	for i, id := range ids {
		want := ""
		if i == 3 {
			want = "🙂"
		}
		if got := s.Push(id); got != want {
			t.Errorf("byte %d: %q, want %q", i, got, want)
		}
	}
	s.Push(ids[0])
	s.Push(ids[1])
	if got := s.Flush(); got != "\ufffd" {
		t.Errorf("flushed %q", got)
	}
	s.Push(ids[0])
	if got := s.Push(ids[0]); got != "\ufffd" {
		t.Errorf("a start after a start gives %q", got)
	}
}

func TestStreamOfDefaultModel(t *testing.T) {
	tok, _ := smolLM2(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		ids := make([]int32, 20)
		for i := range ids {
			ids[i] = rng.Int32N(int32(tok.VocabSize()))
		}
		checkStream(t, tok, ids)
	}
}
