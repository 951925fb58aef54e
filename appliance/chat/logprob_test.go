//go:build cgo

package chat

import (
	"os"
	"strings"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/tokenizer"
)

// files is a tokenizer as a Text.
type files struct{ *tokenizer.Tokenizer }

func (f files) Encoding(s string, addSpecial bool) Encoding {
	return f.NewEncoding(s, tokenizer.EncodeOptions{AddSpecial: addSpecial})
}

func (f files) NewDecoder(skipSpecial bool) Decoder { return f.NewStream(skipSpecial) }

// The test checks that the bytes of a reply's tokens, joined, are its text: also for a
// character of several tokens, for a decoder that strips a space from the start, and for
// special tokens.
func TestLogprobBytes(t *testing.T) {
	for _, name := range []string{"bytelevel", "fallback"} {
		b, err := os.ReadFile("../../engine/tokenizer/testdata/" + name + ".tokenizer.json")
		if err != nil {
			t.Fatal(err)
		}
		tok, err := tokenizer.Load(b, tokenizer.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tok.Close)
		special := int32(-1)
		for id := range int32(tok.VocabSize()) {
			if tok.IsSpecial(id) && len(tok.TokenBytes(id)) > 0 {
				special = id
			}
		}
		for _, text := range []string{"hello there", " two  spaces", "日本語 and more", "🙂 a", "é", "x", "  "} {
			ids, err := tok.Encode(text, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, reply := range [][]int32{ids, append([]int32{special}, ids...), append(ids[:len(ids):len(ids)], special)} {
				holdBytes(t, name, tok, reply, special)
			}
		}
		part := strings.Repeat("🙂", 1)
		ids, _ := tok.Encode(part, false)
		c := &choice{text: files{tok}, vocabulary: tok, begun: true}
		l := c.withBytes(tokenLogprob(engine.Logprob{Token: ids[0], Top: []engine.TopLogprob{{Token: ids[0]}}}, c.text))
		if len(ids) > 1 && (strings.Contains(string(l.Bytes), "\ufffd") || string(l.Top[0].Bytes) != string(l.Bytes)) {
			t.Errorf("%s: part of a character has bytes %q, as an alternative %q", name, l.Bytes, l.Top[0].Bytes)
		}
	}
}

func holdBytes(t *testing.T, name string, tok *tokenizer.Tokenizer, reply []int32, special int32) {
	t.Helper()
	c := &choice{text: files{tok}, vocabulary: tok, skip: true}
	dec, want := c.text.NewDecoder(true), ""
	var got []byte
	for _, id := range reply {
		want += dec.Push(id)
		l := c.withBytes(tokenLogprob(engine.Logprob{Token: id}, c.text))
		if id == special {
			if string(l.Bytes) != tok.TokenText(id) {
				t.Errorf("%s: a special token has bytes %q", name, l.Bytes)
			}
			continue
		}
		got = append(got, l.Bytes...)
	}
	if want += dec.Flush(); string(got) != want {
		t.Errorf("%s: %v has bytes %q, text %q", name, reply, got, want)
	}
}
