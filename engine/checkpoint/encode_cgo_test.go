//go:build cgo

package checkpoint_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/tokenizer"
)

// TestEncode loads the tokenizers built from GGUF metadata; their kinds differ in digits,
// normalization and BOS.
func TestEncode(t *testing.T) {
	for kind, texts := range map[string]map[string][]string{
		"smollm": {
			"hello 123": {"hello", "Ġ", "1", "2", "3"},
			"e\u0301":   {"e", "Ì", "ģ"},
		},
		"llama-bpe": {
			"hello 123":    {"<|begin_of_text|>", "hello", "Ġ", "123"},
			"1234":         {"<|begin_of_text|>", "123", "4"},
			"he<|eot_id|>": {"<|begin_of_text|>", "he", "<|eot_id|>"},
		},
		"qwen2": {
			"hello 123": {"hello", "Ġ", "1", "2", "3"},
			"e\u0301":   {"Ã", "©"}, // NFC combines the two into one letter
		},
	} {
		c, err := checkpoint.Open(toyFile(t, kind))
		if err != nil {
			t.Fatal(err)
		}
		tok := loaded(t, c)
		for text, want := range texts {
			ids, err := tok.Encode(text, true)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, id := range ids {
				got = append(got, tok.Token(id))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q is %q, want %q", kind, text, got, want)
			}
		}
		c.Close()
	}
}

func loaded(t testing.TB, c *checkpoint.Checkpoint) *tokenizer.Tokenizer {
	t.Helper()
	b, err := c.TokenizerJSON()
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(b, tokenizer.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tok.Close)
	return tok
}

func toyFile(t *testing.T, kind string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), kind+".gguf")
	if err := os.WriteFile(path, checkpoint.ToyGGUF(kind), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSynthetic builds the synthetic tokenizer of a full-size model and loads it.
func TestSynthetic(t *testing.T) {
	raw, err := os.ReadFile("testdata/configs/llama-3.2-1b.json")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := checkpoint.ParseConfig("config.json", raw)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	c, err := checkpoint.Dummy(cfg, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.TokenizerJSON()
	if err != nil {
		t.Fatal(err)
	}
	built := time.Since(start)
	tok := loaded(t, c)
	t.Logf("%d bytes of tokenizer.json made in %v, read in %v", len(b), built, time.Since(start)-built)
	if tok.VocabSize() != 128256 {
		t.Errorf("%d tokens", tok.VocabSize())
	}
	const text = "Grüße, 123\x00\n\t" + "👋 <|eos|>"
	ids, err := tok.Encode(text, true)
	if err != nil || len(ids) != len(text)-len("<|eos|>")+1 || ids[len(ids)-1] != 128001 {
		t.Fatalf("%v, %v", ids, err)
	}
	if s, err := tok.Decode(ids, false); err != nil || s != text {
		t.Errorf("%q, %v", s, err)
	}
	if s, err := tok.Decode([]int32{1000, 128255}, false); err != nil || !strings.HasPrefix(s, " w1000 w128255") {
		t.Errorf("%q, %v", s, err)
	}
	if s := c.SpecialTokens(); s.BOS.ID != 128000 || s.EOS.ID != 128001 || !tok.IsSpecial(128000) || !tok.IsSpecial(128001) {
		t.Errorf("%+v", s)
	}
}
