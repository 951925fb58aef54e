//go:build cgo

package tokenizer

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzLoad checks that any bytes give a working tokenizer or one typed error.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/*.tokenizer.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no tokenizers in testdata: ", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"version":"1.0","added_tokens":[{"id":1,"content":"<s>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}],"model":{"type":"BPE","vocab":{"a":0,"<s>":1},"merges":[]}}`))
	f.Fuzz(func(t *testing.T, json []byte) {
		tok, err := Load(json, LoadOptions{MaxJSON: 1 << 20})
		var e *Error
		if err != nil {
			if !errors.As(err, &e) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%T: %v", err, err)
			}
			return
		}
		defer tok.Close()
		ids, err := tok.Encode("a 5\x00é🙂<s>", true)
		if err != nil {
			if !errors.As(err, &e) {
				t.Errorf("%T: %v", err, err)
			}
			return
		}
		if _, err := tok.Decode(ids, true); err != nil && !errors.As(err, &e) {
			t.Errorf("%T: %v", err, err)
		}
		s := tok.NewStream(false)
		for id := range min(tok.VocabSize(), 1000) {
			s.Push(int32(id))
		}
		s.Flush()
	})
}

// FuzzTemplate checks that any template renders to UTF-8 within its limits, or gives one typed
// error.
func FuzzTemplate(f *testing.F) {
	files, err := filepath.Glob("testdata/templates/*.jinja")
	if err != nil || len(files) == 0 {
		f.Fatal("no templates in testdata: ", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	lines, err := os.ReadFile("testdata/expressions.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(lines)) {
		f.Add(line)
	}
	vars := []byte(`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":{"x":1.5}}}]}],"tools":[{"function":{"name":"f"}}],"add_generation_prompt":true,"l":[3,1,2],"d":{"z":1},"s":"a<b>","i":7,"n":null}`)
	limits := Limits{Steps: 100_000, OutputBytes: 1 << 16, MemoryBytes: 8 << 20, Time: 2 * time.Second}
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := NewTemplate(source, limits)
		var te *TemplateError
		var e *Error
		if err == nil {
			defer tmpl.Close()
			tmpl.ContentFormat()
			var out string
			if out, err = tmpl.RenderAt(recordedAt, vars); err == nil && (!utf8.ValidString(out) || len(out) > limits.OutputBytes) {
				t.Errorf("%d bytes, UTF-8 %v", len(out), utf8.ValidString(out))
			}
		}
		if err != nil && !errors.As(err, &te) && !errors.As(err, &e) {
			t.Errorf("%T: %v", err, err)
		}
	})
}

// FuzzStream checks, for any ids, that the concatenated pieces equal the text of all ids.
func FuzzStream(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6}, false)
	f.Add([]byte{0, 190, 0, 191, 1, 66, 0, 0, 0, 1}, true)
	toks := []*Tokenizer{small(f, "bytelevel"), small(f, "fallback")}
	f.Fuzz(func(t *testing.T, raw []byte, skip bool) {
		for _, tok := range toks {
			var ids []int32
			for b := raw; len(b) >= 2; b = b[2:] {
				ids = append(ids, int32(binary.BigEndian.Uint16(b))%int32(tok.VocabSize()+9))
			}
			want, err := tok.Decode(ids, skip)
			if err != nil {
				t.Fatal(err)
			}
			if got := streamAll(t, tok, ids, skip); got != want {
				t.Errorf("%v:\n got %q\nwant %q", ids, got, want)
			}
		}
	})
}
