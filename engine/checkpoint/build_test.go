package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// le appends values in GGUF's encoding: numbers little-endian, strings with their length, []string
// and []int32 as typed arrays.
func le(b []byte, values ...any) []byte {
	for _, v := range values {
		switch v := v.(type) {
		case string:
			b = append(binary.LittleEndian.AppendUint64(b, uint64(len(v))), v...)
		case []byte:
			b = append(b, v...)
		case []string:
			b = le(b, uint32(kindString), uint64(len(v)))
			for _, s := range v {
				b = le(b, s)
			}
		case []int32:
			b = le(b, uint32(kindI32), uint64(len(v)))
			for _, n := range v {
				b = le(b, uint32(n))
			}
		case []float32:
			b = le(b, uint32(kindF32), uint64(len(v)))
			for _, x := range v {
				b = le(b, x)
			}
		case bool:
			n := byte(0)
			if v {
				n = 1
			}
			b = append(b, n)
		case uint8:
			b = append(b, v)
		case uint32:
			b = binary.LittleEndian.AppendUint32(b, v)
		case uint64:
			b = binary.LittleEndian.AppendUint64(b, v)
		case float32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		default:
			panic(fmt.Sprintf("%T", v))
		}
	}
	return b
}

func kindOf(v any) ggufKind {
	switch v.(type) {
	case string:
		return kindString
	case []string, []int32, []float32:
		return kindArray
	case bool:
		return kindBool
	case uint8:
		return kindU8
	case uint32:
		return kindU32
	case uint64:
		return kindU64
	case float32:
		return kindF32
	}
	panic(fmt.Sprintf("%T", v))
}

// pair is a metadata entry; raw, if set, replaces type and value.
type pair struct {
	key   string
	value any
	raw   []byte
}

// entry is a tensor of the tensor list, fastest dimension first.
type entry struct {
	name   string
	dims   []uint64
	kind   uint32
	offset uint64
}

// toy returns a valid GGUF file for tests to change.
type toy struct {
	magic, version uint32
	pairs          []pair
	tensors        []entry
	keys, count    uint64 // added to the true numbers
	data           int    // bytes after the header
}

// toyTokens are the 256 bytes, six tokens produced by merges, and three special tokens.
func toyTokens() (tokens []string, types []int32) {
	for _, r := range byteLetters() {
		tokens, types = append(tokens, string(r)), append(types, tokenNormal)
	}
	for _, t := range []string{"he", "ll", "hell", "hello", "12", "123"} {
		tokens, types = append(tokens, t), append(types, tokenNormal)
	}
	for _, t := range []string{"<|begin_of_text|>", "<|eot_id|>", "<|im_end|>"} {
		tokens, types = append(tokens, t), append(types, tokenControl)
	}
	return tokens, types
}

const toyVocab = 256 + 6 + 3

func newToy(pre string) *toy {
	tokens, types := toyTokens()
	return &toy{
		magic: 0x46554747, version: 3,
		pairs: []pair{
			{key: "general.architecture", value: "llama"},
			{key: "llama.embedding_length", value: uint32(8)},
			{key: "llama.feed_forward_length", value: uint32(16)},
			{key: "llama.block_count", value: uint32(1)},
			{key: "llama.attention.head_count", value: uint32(2)},
			{key: "llama.attention.head_count_kv", value: uint32(1)},
			{key: "llama.context_length", value: uint32(64)},
			{key: "llama.attention.layer_norm_rms_epsilon", value: float32(1e-5)},
			{key: "llama.rope.freq_base", value: float32(10000)},
			{key: "tokenizer.ggml.model", value: "gpt2"},
			{key: "tokenizer.ggml.pre", value: pre},
			{key: "tokenizer.ggml.tokens", value: tokens},
			{key: "tokenizer.ggml.token_type", value: types},
			{key: "tokenizer.ggml.merges", value: []string{"h e", "l l", "he ll", "hell o", "1 2", "12 3"}},
			{key: "tokenizer.ggml.bos_token_id", value: uint32(262)},
			{key: "tokenizer.ggml.eos_token_id", value: uint32(264)},
		},
		tensors: []entry{
			{"token_embd.weight", []uint64{8, toyVocab}, 0, 0},
			{"output_norm.weight", []uint64{8}, 0, 8 * toyVocab * 4},
		},
		data: 8*toyVocab*4 + 32,
	}
}

// set sets a key's value, or removes the key if the value is nil.
func (m *toy) set(key string, value any) *toy {
	for i, p := range m.pairs {
		if p.key == key {
			m.pairs = append(m.pairs[:i:i], m.pairs[i+1:]...)
			break
		}
	}
	if raw, ok := value.(rawValue); ok {
		m.pairs = append(m.pairs, pair{key: key, raw: raw})
	} else if value != nil {
		m.pairs = append(m.pairs, pair{key: key, value: value})
	}
	return m
}

// rawValue returns a typed value in the file's encoding.
type rawValue []byte

func (m *toy) bytes() []byte {
	b := le(nil, m.magic, m.version, uint64(len(m.tensors))+m.count, uint64(len(m.pairs))+m.keys)
	for _, p := range m.pairs {
		if b = le(b, p.key); p.raw != nil {
			b = append(b, p.raw...)
		} else {
			b = le(b, uint32(kindOf(p.value)), p.value)
		}
	}
	for _, t := range m.tensors {
		b = le(b, t.name, uint32(len(t.dims)))
		for _, d := range t.dims {
			b = le(b, d)
		}
		b = le(b, t.kind, t.offset)
	}
	b = append(b, make([]byte, -len(b)&31)...)
	return append(b, make([]byte, m.data)...)
}

// writeTemp writes a file of these bytes and returns its path.
func writeTemp(t testing.TB, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkAllocation fails the test if fn allocates more than most bytes.
func checkAllocation(t *testing.T, most uint64, fn func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > most {
		t.Errorf("%d bytes allocated, more than %d", n, most)
	}
}
