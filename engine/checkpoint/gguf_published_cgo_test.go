//go:build cgo

package checkpoint_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/tokenizer"
)

// textMark separates the texts of llama.cpp's files of texts.
const textMark = "\n__ggml_vocab_test__\n"

// TestPublishedVocabularies compares token ids with those that llama.cpp's sources have beside the
// vocabularies of published models, models/ggml-vocab-*.gguf: texts in .inp, ids in .out.
// `make compare-llamacpp` names their directory.
func TestPublishedVocabularies(t *testing.T) {
	dir := os.Getenv("VAPP_VOCABULARIES")
	if dir == "" {
		t.Skip("not run: make compare-llamacpp names llama.cpp's vocabularies in VAPP_VOCABULARIES")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "ggml-vocab-*.gguf"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s has no vocabularies (%v)", dir, err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "ggml-vocab-"), ".gguf")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b, err := checkpoint.VocabularyJSON(path, data)
			var refused *checkpoint.Error
			if errors.As(err, &refused) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			publishedIDs(t, path, b, strings.Contains(composes, " "+name+" "))
		})
	}
}

// publishedIDs compares the ids of one vocabulary. A tokenizer that composes letters and marks first, as
// the model's own does and llama.cpp's does not, has other ids for texts with combining marks.
func publishedIDs(t *testing.T, path string, json []byte, composes bool) {
	texts, err := os.ReadFile(path + ".inp")
	if err != nil {
		t.Skip(err)
	}
	ids, err := os.ReadFile(path + ".out")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(json, tokenizer.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tok.Close()
	lines := strings.Split(string(ids), "\n")
	for i, text := range strings.Split(string(texts), textMark) {
		var want []int32
		for _, word := range strings.Fields(lines[i]) {
			id, err := strconv.ParseInt(word, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, int32(id))
		}
		got, err := tok.Encode(text, false)
		if err != nil {
			t.Fatal(err)
		}
		if composes && strings.ContainsFunc(text, func(r rune) bool { return 0x300 <= r && r < 0x370 }) {
			continue
		}
		if !slices.Equal(got, want) {
			t.Errorf("text %d %q\n got %v\nwant %v", i, text, got, want)
		}
	}
}
