//go:build cgo

package tokenizer

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// families are variants of the testdata tokenizers that divide text as real models' tokenizers do.
// The last two strings of each replace normalizer and pre_tokenizer; "" keeps the original.
var families = map[string][3]string{
	"llama3": {"bytelevel", `null`, split(`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`)},
	"qwen2":  {"bytelevel", `{"type":"NFC"}`, split(`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`)},
	"qwen35": {"bytelevel", `{"type":"NFC"}`, split(`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`)},
	"o200k":  {"bytelevel", `null`, split(`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`)},
	"cl100k": {"bytelevel", `null`, split(`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`)},
	"gpt2":   {"bytelevel", `null`, `{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}`},
	"runs":   {"bytelevel", `null`, `{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]}`},
	"nfkd":   {"bytelevel", `{"type":"Sequence","normalizers":[{"type":"NFKD"},{"type":"Lowercase"}]}`, ``},
	"gemma": {"fallback", `{"type":"Replace","pattern":{"String":" "},"content":"▁"}`,
		`{"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious","invert":false}`},
	"metaspace": {"fallback", `null`, `{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true}`},
	"always":    {"fallback", `null`, `{"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":false}`},
}

func split(regex string) string {
	b, _ := json.Marshal(regex)
	return `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":` + string(b) +
		`},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}]}`
}

// family loads a tokenizer of families, with additional added tokens.
func family(t testing.TB, name string, added ...map[string]any) *Tokenizer {
	t.Helper()
	f := families[name]
	b, err := os.ReadFile("testdata/" + f[0] + ".tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	var def map[string]any
	if err := json.Unmarshal(b, &def); err != nil {
		t.Fatal(err)
	}
	for i, key := range []string{"normalizer", "pre_tokenizer"} {
		if f[i+1] != "" {
			def[key] = json.RawMessage(f[i+1])
		}
	}
	list := def["added_tokens"].([]any)
	for i, a := range added {
		full := map[string]any{"id": 1000 + i, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false}
		for k, v := range a {
			full[k] = v
		}
		list = append(list, full)
	}
	def["added_tokens"] = list
	if b, err = json.Marshal(def); err != nil {
		t.Fatal(err)
	}
	return loaded(t, b)
}

// everyTokenizer returns all tokenizers of the test data and of families.
func everyTokenizer(t testing.TB) map[string]*Tokenizer {
	t.Helper()
	out := map[string]*Tokenizer{}
	var files []string
	for _, glob := range []string{"testdata/*.tokenizer.json", "../models/testdata/*/tokenizer.json", "../models/testdata/pooling/*/tokenizer.json"} {
		found, err := filepath.Glob(glob)
		if err != nil || len(found) == 0 {
			t.Fatal("no tokenizers in", glob, err)
		}
		files = append(files, found...)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = loaded(t, b)
	}
	for name := range families {
		out[name] = family(t, name)
	}
	strips := map[string]any{"content": "<mask>", "lstrip": true, "rstrip": true}
	word := map[string]any{"content": "word", "single_word": true}
	out["llama3 and added tokens"] = family(t, "llama3", strips, word, map[string]any{"content": "NEW", "normalized": true})
	out["qwen2 and added tokens"] = family(t, "qwen2", strips, word, map[string]any{"content": "é1", "normalized": true})
	out["metaspace and added tokens"] = family(t, "metaspace", strips, word)
	return out
}

// encodeWindows encodes in windows of that many bytes; below 0 the whole text at once.
func encodeWindows(t testing.TB, tok *Tokenizer, text string, o EncodeOptions, window int) ([]int32, int) {
	t.Helper()
	e := tok.NewEncoding(text, o)
	e.window = window
	ids, calls := []int32{}, 0
	for !e.Done() {
		var err error
		if ids, err = e.Next(ids); err != nil {
			t.Fatalf("%.60q in windows of %d: %v", text, window, err)
		}
		calls++
	}
	return ids, calls
}

// pieces are the building blocks of the texts in these tests.
var pieces = []string{
	"a", "B", "the ", " quick", "1", "234", "5678901234", " ", "  ", "\n", "\r\n", "\t", " \n ", "      ", "'s", "'LL", "'", ".", "...", "!?\n\n", "/", "é", "e\u0301",
	"\u0323", "\u0301\u0323", "中", "文字", "한국", "\u1112\u1161\u11ab", "🙂", "👩\u200d👩\u200d👧", "\u00a0", "\u3000", "ß", "ſ", "İ", "ﬁ", "Ⅷ", "½", "\x00", "\u2581", "ǅ", "नमस्ते",
	"<|im_start|>", "<think>", "<s>", "<mask>", " <mask>  ", "word", "sword", "NEW", "e\u03011", "<|endoftext|>", "[CLS]", "<|im_st", "\ufffd", "_", "$", "€",
}

// TestWindows checks that encoding in windows gives the same ids as encoding at once.
func TestWindows(t *testing.T) {
	t.Parallel()
	for name, tok := range everyTokenizer(t) {
		r := rand.New(rand.NewPCG(1, 2))
		for range 150 {
			var b strings.Builder
			few := pieces[r.IntN(len(pieces)):]
			few = few[:1+r.IntN(min(8, len(few)))]
			for range 1 + r.IntN(60) {
				b.WriteString(few[r.IntN(len(few))])
			}
			o := EncodeOptions{AddSpecial: r.IntN(2) == 0, PlainSpecial: r.IntN(3) == 0}
			sameIDs(t, name, tok, b.String(), o, 1+r.IntN(40))
		}
	}
}

func sameIDs(t testing.TB, name string, tok *Tokenizer, text string, o EncodeOptions, window int) {
	t.Helper()
	want, _ := encodeWindows(t, tok, text, o, -1)
	got, _ := encodeWindows(t, tok, text, o, window)
	if !slices.Equal(got, want) {
		t.Fatalf("%s, %+v, windows of %d, %q:\n got %v\nwant %v", name, o, window, text, got, want)
	}
}

// FuzzWindows is TestWindows for any text and window.
func FuzzWindows(f *testing.F) {
	for i := range pieces {
		f.Add(strings.Repeat(pieces[i], 9)+pieces[(i+1)%len(pieces)]+strings.Repeat(pieces[(i+7)%len(pieces)], 5), uint8(i), i%2 == 0, i%3 == 0)
	}
	f.Add(strings.Repeat("0123456789", 40), uint8(16), true, false)
	f.Add("\n"+strings.Repeat(" ", 90)+"x"+strings.Repeat(" \n", 40), uint8(8), false, false)
	all := everyTokenizer(f)
	f.Fuzz(func(t *testing.T, text string, window uint8, add, plain bool) {
		if !utf8.ValidString(text) || len(text) > Undivided {
			return
		}
		for name, tok := range all {
			sameIDs(t, name, tok, text, EncodeOptions{AddSpecial: add, PlainSpecial: plain}, 1+int(window))
		}
	})
}

// TestLongTexts checks that long texts are divided, and that a text without a dividing position is
// refused.
func TestLongTexts(t *testing.T) {
	t.Parallel()
	const n = Undivided * 5 / 4
	for _, c := range []struct{ tokenizer, text string }{
		{"llama3", "7"}, {"llama3", "word and, another.\n"}, {"qwen2", "7"}, {"qwen2", "漢字。"}, {"o200k", "x\n"}, {"gemma", "word and, another. "},
		{"metaspace", "ab "}, {"gpt2", "7 "}, {"nfkd", "7"}, {"llama3", "<|im_start|>"},
	} {
		text := strings.Repeat(c.text, n/len(c.text))
		tok := family(t, c.tokenizer)
		ids, calls := encodeWindows(t, tok, text, EncodeOptions{}, 0)
		if want, _ := encodeWindows(t, tok, text, EncodeOptions{}, -1); !slices.Equal(ids, want) {
			t.Errorf("%s: %q, %d times: %d ids, want %d", c.tokenizer, c.text, n, len(ids), len(want))
		}
		if calls < 4 {
			t.Errorf("%s: %q was encoded in %d windows", c.tokenizer, c.text, calls)
		}
	}
	for _, c := range []struct{ tokenizer, text string }{{"llama3", "a"}, {"llama3", " "}, {"gemma", "\U0001F642"}, {"gpt2", "7"}} {
		_, err := family(t, c.tokenizer).Encode(strings.Repeat(c.text, n), false)
		var e *Error
		if !errors.As(err, &e) || e.Kind != KindLength {
			t.Errorf("%s: %q: %v", c.tokenizer, c.text, err)
		}
	}
}
