//go:build cgo

package checkpoint_test

import (
	"compress/gzip"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/tokenizer"
)

// recordedVocabulary is a small vocabulary of testdata/tokenizers.
type recordedVocabulary struct {
	Tokens []string
	Types  []int32
	Scores []float32
	Merges []string
}

func (v recordedVocabulary) keys(model, pre string) map[string]any {
	last := uint32(len(v.Tokens) - 1)
	keys := map[string]any{
		"model": model, "pre": pre, "tokens": v.Tokens, "token_type": v.Types, "bos_token_id": last, "eos_token_id": last,
	}
	if model == "llama" {
		keys["scores"] = v.Scores
	} else {
		keys["merges"] = v.Merges
	}
	return keys
}

// composes lists names of tokenizers that compose letters and marks first, or count marks to words, as
// the models' own tokenizers do. llama.cpp does not: their last two texts are not compared.
const composes = " qwen2 deepseek-r1-qwen kormo f2llmv2 megrez qwen35 command-r olmo gpt-4o llama4 kanana2 talkie minimax-m2 tekken kimi-k2 "

// kimiWords has the tokens of a text of which llama.cpp does not split the words of kimi-k2 at capitals,
// as the model's tokenizer does.
var kimiWords = []string{"cam", "el", "Ca", "s", "e", "Ġ", "HTMLPa", "rser", "ĠXML", "Ht", "t", "p", "Re", "quest", "Ġdon't", "Stop", "ĠÃĦÃĸÃľ", "ÃŁ", "ĠSt", "raÃŁe"}

// approximated lists the texts that llama.cpp splits otherwise than the expression of the model's own
// tokenizer: it joins small letters and capitals (text 6), and of Tiny Aya's numbers it knows neither digits
// nor word boundaries beyond ASCII (7, 10).
var approximated = map[string][]int{"youtu": {6}, "tiny_aya": {6, 7, 10}, "cohere2moe": {6, 7, 10}}

// TestVocabularies compares token ids with those of llama.cpp, for every kind of tokenizer.
func TestVocabularies(t *testing.T) {
	f, err := os.Open("testdata/tokenizers/tokenizers.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Texts         []string
		Bytes, Pieces recordedVocabulary
		Kinds         []struct {
			Names []string
			IDs   [][]int32
		}
		SPM, SPMPlain, Gemma4 [][]int32
	}
	if err := json.NewDecoder(raw).Decode(&g); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{"gemma4": true}
	for _, kind := range g.Kinds {
		for _, name := range kind.Names {
			seen[name] = true
			keys := g.Bytes.keys("gpt2", name)
			keys["add_bos_token"] = false
			sameTokens(t, name, g.Texts, keys, kind.IDs)
		}
	}
	if names := slices.Sorted(maps.Keys(seen)); !slices.Equal(names, checkpoint.Pretokenizers()) {
		t.Errorf("recorded are %q, read are %q", names, checkpoint.Pretokenizers())
	}
	sameTokens(t, "llama", g.Texts, g.Pieces.keys("llama", "default"), g.SPM)
	plain := g.Pieces.keys("llama", "default")
	plain["add_space_prefix"] = false
	sameTokens(t, "llama without a space", g.Texts, plain, g.SPMPlain)
	sameTokens(t, "gemma4", g.Texts, g.Pieces.keys("gemma4", "gemma4"), g.Gemma4)
	sameTokens(t, "gpt2 gemma4", g.Texts, g.Pieces.keys("gpt2", "gemma4"), g.Gemma4)
}

func sameTokens(t *testing.T, name string, texts []string, keys map[string]any, want [][]int32) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "v.gguf")
	if err := os.WriteFile(path, checkpoint.TokenizerGGUF(len(keys["tokens"].([]string)), keys), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer c.Close()
	b, err := c.TokenizerJSON()
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(b, tokenizer.LoadOptions{})
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	defer tok.Close()
	for i, text := range texts {
		got, err := tok.Encode(text, true)
		if err != nil {
			t.Fatal(err)
		}
		if i >= len(texts)-2 && strings.Contains(composes, " "+name+" ") || slices.Contains(approximated[name], i) {
			continue
		}
		var a, b []string
		for _, id := range got {
			a = append(a, tok.Token(id))
		}
		for _, id := range want[i] {
			b = append(b, tok.Token(id))
		}
		if name == "kimi-k2" && strings.HasPrefix(text, "camelCase ") {
			b = kimiWords
		}
		if !slices.Equal(a, b) {
			t.Errorf("%s: text %d %q\n got %q\nwant %q", name, i, text, a, b)
		}
	}
}
