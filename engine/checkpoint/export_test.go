package checkpoint

import (
	"maps"
	"slices"
)

// ToyGGUF returns a small file with a tokenizer of that kind.
func ToyGGUF(kind string) []byte { return newToy(kind).bytes() }

// TokenizerGGUF returns a toy with a tokenizer from these metadata keys.
func TokenizerGGUF(tokens int, keys map[string]any) []byte {
	m := newToy("smollm")
	for _, key := range []string{"merges", "pre", "bos_token_id", "eos_token_id"} {
		m.set("tokenizer.ggml."+key, nil)
	}
	for key, value := range keys {
		m.set("tokenizer.ggml."+key, value)
	}
	m.tensors[0].dims[1] = uint64(tokens)
	m.tensors[1].offset = uint64(8 * tokens * 4)
	m.data = 8*tokens*4 + 32
	return m.bytes()
}

// Pretokenizers returns the values of tokenizer.ggml.pre that are read, sorted.
func Pretokenizers() []string { return slices.Sorted(maps.Keys(bpeKinds())) }

// VocabularyJSON returns the tokenizer.json of a GGUF file that has a vocabulary and no tensors.
func VocabularyJSON(path string, data []byte) ([]byte, error) {
	c := &ggufCursor{path: path, data: data}
	c.take(uint64(len("GGUF")), "magic")
	c.u32("version")
	c.u64("tensor_count")
	g := &gguf{path: path, values: map[string]ggufValue{}}
	for i, n := uint64(0), c.u64("metadata_kv_count"); i < n && c.err == nil; i++ {
		g.readKey(c, i)
	}
	if c.err != nil {
		return nil, c.err
	}
	t, err := ggufText(g, Config{VocabSize: g.values["tokenizer.ggml.tokens"].n})
	if err != nil {
		return nil, err
	}
	return t.tokenizer()
}
