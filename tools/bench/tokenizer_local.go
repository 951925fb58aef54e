package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/tokenizer"
	"vapp.dev/tools/bench/workload"
)

// OpenTokenizer loads the tokenizer at path: a directory with a tokenizer.json, that file, or a
// GGUF file.
func OpenTokenizer(path string) (*Local, error) {
	text, err := tokenizerJSON(path)
	if err != nil {
		return nil, err
	}
	t, err := tokenizer.Load(text, tokenizer.LoadOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return NewLocal(t), nil
}

func tokenizerJSON(path string) ([]byte, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("tokenizer: %w; give a directory with a tokenizer.json, that file, or a GGUF file", err)
	case st.IsDir():
		path = filepath.Join(path, "tokenizer.json")
		if st, err = os.Stat(path); err != nil {
			return nil, fmt.Errorf("tokenizer: %w; give a directory that has one, or a GGUF file", err)
		}
	case strings.EqualFold(filepath.Ext(path), ".gguf"):
		c, err := checkpoint.OpenMetadata(path)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return c.TokenizerJSON()
	}
	const most = 96 << 20
	if st.Size() > most {
		return nil, fmt.Errorf("%s: %d bytes, a tokenizer.json has at most %d; for a GGUF file its name must end in .gguf", path, st.Size(), most)
	}
	return os.ReadFile(path)
}

// Local is a tokenizer in this process.
type Local struct{ t *tokenizer.Tokenizer }

// NewLocal wraps a tokenizer and takes ownership of it.
func NewLocal(t *tokenizer.Tokenizer) *Local { return &Local{t} }

// Close frees the tokenizer.
func (l *Local) Close() { l.t.Close() }

// Encode implements workload.Tokenizer.
func (l *Local) Encode(_ context.Context, text string) ([]int32, error) {
	return l.t.Encode(text, false)
}

// Decode implements workload.Tokenizer.
func (l *Local) Decode(_ context.Context, ids []int32) (string, error) {
	return l.t.Decode(ids, false)
}

// Vocabulary implements workload.Tokenizer.
func (l *Local) Vocabulary(context.Context) (workload.Vocabulary, error) {
	added, err := l.t.Encode("", true)
	if err != nil {
		return workload.Vocabulary{}, err
	}
	v := workload.Vocabulary{Size: l.t.VocabSize(), Added: len(added)}
	for id := range int32(v.Size) {
		if !l.t.IsSpecial(id) && l.t.TokenBytes(id) != nil {
			v.Allowed = append(v.Allowed, id)
		}
	}
	return v, nil
}
