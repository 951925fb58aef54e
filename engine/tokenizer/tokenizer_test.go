//go:build cgo

package tokenizer

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"

	"vapp.dev/engine/checkpoint"
)

const smollm = "../../models/SmolLM2-135M-Instruct.Q4_1.gguf"

// smolLM2 opens the default model, or skips the test if it was not fetched.
func smolLM2(t testing.TB) (*Tokenizer, *checkpoint.Checkpoint) {
	t.Helper()
	c, err := checkpoint.OpenMetadata(smollm)
	if err != nil {
		t.Skipf("the default model is not here (make model fetches it): %v", err)
	}
	json, err := c.TokenizerJSON()
	if err != nil {
		t.Fatal(err)
	}
	return loaded(t, json), c
}

func loaded(t testing.TB, json []byte) *Tokenizer {
	t.Helper()
	tok, err := Load(json, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tok.Close)
	return tok
}

// small loads one of the tokenizers of testdata: bytelevel, fallback, wordpiece.
func small(t testing.TB, kind string) *Tokenizer {
	t.Helper()
	b, err := os.ReadFile("testdata/" + kind + ".tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	return loaded(t, b)
}

// row is the result of Python's tokenizers for a text.
type row struct {
	Text, Decoded, Skipped string
	IDs, Bare              []int32
}

func rows(t testing.TB) map[string][]row {
	t.Helper()
	b, err := os.ReadFile("testdata/texts.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]row
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTexts(t *testing.T) {
	for file, rs := range rows(t) {
		t.Run(file, func(t *testing.T) {
			var tok *Tokenizer
			if file == "SmolLM2" {
				tok, _ = smolLM2(t)
			} else {
				b, err := os.ReadFile("testdata/" + file)
				if err != nil {
					t.Fatal(err)
				}
				tok = loaded(t, b)
			}
			for _, r := range rs {
				r.run(t, tok)
			}
		})
	}
}

func (r row) run(t *testing.T, tok *Tokenizer) {
	t.Helper()
	ids, err := tok.Encode(r.Text, true)
	if err != nil || !slices.Equal(ids, r.IDs) {
		t.Errorf("%q: ids %v, %v; want %v", r.Text, ids, err, r.IDs)
	}
	if bare, err := tok.Encode(r.Text, false); err != nil || !slices.Equal(bare, r.Bare) {
		t.Errorf("%q: bare ids %v, %v; want %v", r.Text, bare, err, r.Bare)
	}
	if s, err := tok.Decode(r.IDs, false); err != nil || s != r.Decoded {
		t.Errorf("%v: %q, %v; want %q", r.IDs, s, err, r.Decoded)
	}
	if s, err := tok.Decode(r.IDs, true); err != nil || s != r.Skipped {
		t.Errorf("%v without special tokens: %q, %v; want %q", r.IDs, s, err, r.Skipped)
	}
}

// TestDigitAfterSpaces checks that digits are split off first, so that two spaces before a digit
// stay one token.
func TestDigitAfterSpaces(t *testing.T) {
	tok, _ := smolLM2(t)
	ids, err := tok.Encode("a  5", false)
	if want := []int32{81, 256, 37}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("got %v, %v, want %v", ids, err, want)
	}
}

func TestTokens(t *testing.T) {
	tok := small(t, "bytelevel")
	end, ok := tok.ID("<|im_end|>")
	if !ok || !tok.IsSpecial(end) || string(tok.TokenBytes(end)) != "<|im_end|>" || tok.TokenText(end) != "<|im_end|>" {
		t.Errorf("<|im_end|> is %d, %v, special %v", end, ok, tok.IsSpecial(end))
	}
	the, ok := tok.ID("Ġthe")
	if !ok || tok.IsSpecial(the) || string(tok.TokenBytes(the)) != " the" || tok.Token(the) != "Ġthe" || tok.TokenText(the) != " the" {
		t.Errorf("Ġthe is %d, %v: bytes %q, spelling %q, text %q", the, ok, tok.TokenBytes(the), tok.Token(the), tok.TokenText(the))
	}
	half, ok := tok.ID("ð")
	if !ok || string(tok.TokenBytes(half)) != "\xf0" || tok.TokenText(half) != "\ufffd" {
		t.Errorf("the byte F0 is %d, %v: bytes %x, text %q", half, ok, tok.TokenBytes(half), tok.TokenText(half))
	}
	think, ok := tok.ID("<think>")
	if !ok || tok.IsSpecial(think) || string(tok.TokenBytes(think)) != "<think>" {
		t.Errorf("<think> is %d, %v, special %v", think, ok, tok.IsSpecial(think))
	}
	if n := tok.VocabSize(); n != int(think)+1 || n != int(tok.HF().VocabSize()) {
		t.Errorf("vocabulary of %d, <think> is %d, daulet says %d", n, think, tok.HF().VocabSize())
	}
	for _, id := range []int32{-1, int32(tok.VocabSize()), 1 << 30} {
		if tok.TokenBytes(id) != nil || tok.Token(id) != "" || tok.TokenText(id) != "" || tok.IsSpecial(id) {
			t.Errorf("id %d has a token", id)
		}
	}
	if _, ok := tok.ID("no such token"); ok {
		t.Error("found a token that is not there")
	}
}

func TestPlainSpecial(t *testing.T) {
	tok := small(t, "bytelevel")
	text := "a<|im_end|>b<think>"
	end, _ := tok.ID("<|im_end|>")
	think, _ := tok.ID("<think>")
	parsed, err := tok.Encode(text, false)
	if err != nil || !slices.Contains(parsed, end) {
		t.Errorf("parsed: %v, %v", parsed, err)
	}
	plain, err := tok.EncodeWith(text, EncodeOptions{AddSpecial: true, PlainSpecial: true})
	if err != nil || slices.Contains(plain, end) || !slices.Contains(plain, think) || !tok.IsSpecial(plain[0]) {
		t.Errorf("plain: %v, %v", plain, err)
	}
	if s, err := tok.Decode(plain[1:], false); err != nil || s != text {
		t.Errorf("decodes to %q, %v", s, err)
	}
}

// TestHF checks that daulet's package works on the same object, except that its texts end at a NUL
// byte.
func TestHF(t *testing.T) {
	tok := small(t, "bytelevel")
	text := "the quick brown 🙂 fox 42"
	ours, err := tok.Encode(text, true)
	if err != nil {
		t.Fatal(err)
	}
	theirs, _ := tok.HF().Encode(text, true)
	if len(ours) != len(theirs) {
		t.Fatalf("%v and %v", ours, theirs)
	}
	for i := range ours {
		if uint32(ours[i]) != theirs[i] {
			t.Errorf("id %d: %d and %d", i, ours[i], theirs[i])
		}
	}
}

func TestArguments(t *testing.T) {
	tok := small(t, "bytelevel")
	for name, call := range map[string]func() error{
		"not UTF-8":   func() error { _, err := tok.Encode("a\xffb", false); return err },
		"below zero":  func() error { _, err := tok.Decode([]int32{1, -1}, false); return err },
		"too large":   func() error { _, err := Load(make([]byte, 11), LoadOptions{MaxJSON: 10}); return err },
		"vocab below": func() error { _, err := NewGrammarEnv(tok, GrammarOptions{VocabSize: -1}); return err },
	} {
		var e *Error
		if err := call(); !errors.As(err, &e) || e.Kind != KindArgument && e.Kind != KindTokenizer {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestManyGoroutines(t *testing.T) {
	tok := small(t, "bytelevel")
	rs := rows(t)["bytelevel.tokenizer.json"]
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 200 {
				r := rs[(i+g)%len(rs)]
				ids, err := tok.Encode(r.Text, true)
				if err != nil || !slices.Equal(ids, r.IDs) {
					t.Errorf("%q: %v, %v", r.Text, ids, err)
					return
				}
				if s, err := tok.Decode(ids, false); err != nil || s != r.Decoded {
					t.Errorf("%v: %q, %v", ids, s, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestClosed(t *testing.T) {
	tok := small(t, "bytelevel")
	tok.Close()
	tok.Close()
	_, err := tok.Encode("a", false)
	var e *Error
	if !errors.As(err, &e) || e.Kind != KindClosed {
		t.Errorf("got %v, want KindClosed", err)
	}
	if tok.VocabSize() == 0 || tok.HF() != nil {
		t.Error("the table is gone, or the native object is not")
	}
}
