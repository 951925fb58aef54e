//go:build cgo

package checkpoint

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"vapp.dev/engine/tokenizer"
)

// TestTiktoken compares token ids of a tiktoken.model with those that tiktoken recorded.
func TestTiktoken(t *testing.T) {
	const dir = "testdata/tiktoken"
	b, err := tokenizerOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(b, tokenizer.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tok.Close()
	raw, err := os.ReadFile(filepath.Join(dir, "texts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Texts []string
		IDs   [][]int32
	}
	if err := json.Unmarshal(raw, &g); err != nil || len(g.Texts) < 20 {
		t.Fatal(len(g.Texts), err)
	}
	for i, text := range g.Texts {
		got, err := tok.Encode(text, true)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, g.IDs[i]) {
			t.Errorf("text %d %q: %v, want %v", i, text, got, g.IDs[i])
		}
		if back, err := tok.Decode(got, false); err != nil || back != text {
			t.Errorf("text %d %q comes back as %q, %v", i, text, back, err)
		}
	}
}
