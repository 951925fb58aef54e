package checkpoint

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tiktokenFolder copies testdata/tiktoken, with files replaced.
func tiktokenFolder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{tiktokenFile, "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join("testdata/tiktoken", name))
		if text, ok := files[name]; ok {
			b, err = []byte(text), nil
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestTiktokenRefused names the file and line of what is wrong. A tokenizer.json takes precedence.
func TestTiktokenRefused(t *testing.T) {
	for what, files := range map[string]map[string]string{
		`is ""; of folders with a tiktoken.model`:        {"tokenizer_config.json": `{}`},
		`is "QWenTokenizer"; of folders`:                 {"tokenizer_config.json": `{"tokenizer_class": "QWenTokenizer"}`},
		"line 2 is not a token in base64 and its id: x":  {tiktokenFile: "AA== 0\nx\n"},
		"line 1 is not a token in base64 and its id:  0": {tiktokenFile: " 0\n"},
		"line 2: id 0 is there twice":                    {tiktokenFile: "AA== 0\nAQ== 0\n"},
		"line 2: token 1 is token 0 again":               {tiktokenFile: "AA== 0\nAA== 1\n"},
		"line 1: id 2 is there twice, or above":          {tiktokenFile: "AA== 2\nAQ== 0\n"},
		"has 2 tokens of one byte, not 256":              {tiktokenFile: "AA== 1\nAQ== 0\n"},
		"7: [BOS] is not one of the 256 special tokens":  {"tokenizer_config.json": `{"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": {"7": {"content": "[BOS]"}}}`},
		"added_tokens_decoder: is not a map of tokens":   {"tokenizer_config.json": `{"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": {"7": 7}}`},
		"tokenizer_class: is 7, not a short string":      {"tokenizer_config.json": `{"tokenizer_class": 7}`},
	} {
		_, err := tokenizerOf(tiktokenFolder(t, files))
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	dir := tiktokenFolder(t, map[string]string{tiktokenFile: "broken"})
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(`{"version":"1.0"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := tokenizerOf(dir); err != nil || string(b) != `{"version":"1.0"}` {
		t.Errorf("%s, %v", b, err)
	}
}

// FuzzTiktoken: any file gives a tokenizer.json or an *Error.
func FuzzTiktoken(f *testing.F) {
	words, err := os.ReadFile("testdata/tiktoken/tiktoken.model")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(words, []byte(`{"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": {"640": {"content": "[BOS]"}}}`))
	f.Add([]byte("AA== 0\n"), []byte(`{"tokenizer_class": "TikTokenTokenizer"}`))
	f.Fuzz(func(t *testing.T, words, config []byte) {
		tok, err := newFields("tokenizer_config.json", "", config)
		if err != nil {
			return
		}
		b, err := tiktokenJSON("folder", bytes.Clone(words), tok)
		if err == nil && !json.Valid(b) {
			t.Errorf("%q", b)
		}
		if _, typed := err.(*Error); err != nil && !typed {
			t.Errorf("%T: %v", err, err)
		}
	})
}
