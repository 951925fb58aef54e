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
