package checkpoint

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"vapp.dev/kernels/ref"
)

func TestToyGGUF(t *testing.T) {
	c, err := Open(writeTemp(t, "toy.gguf", newToy("smollm").bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Config().VocabSize != toyVocab || len(c.Tensors()) != 2 || dump(c.EOSTokenIDs()) != "[264,263]" {
		t.Errorf("%+v, %v", c.Config(), c.EOSTokenIDs())
	}
	if b, err := c.TokenizerJSON(); err != nil || !json.Valid(b) {
		t.Errorf("tokenizer.json: %v", err)
	}
}

// TestQwenGGUF checks that the rows of Q and K keep their order, unlike in llama files, and that
// Qwen3's head norms have names.
func TestQwenGGUF(t *testing.T) {
	for name, want := range map[string]string{"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"} {
		m := newToy("qwen2").set("general.architecture", name).set(name+".attention.key_length", uint32(16))
		for i := range m.pairs {
			m.pairs[i].key = strings.Replace(m.pairs[i].key, "llama.", name+".", 1)
		}
		for _, n := range []string{"attn_q", "attn_k", "attn_q_norm", "attn_k_norm"} {
			m.tensors = append(m.tensors, entry{"blk.0." + n + ".weight", []uint64{16}, 0, uint64(m.data)})
			m.data += 64
		}
		c, err := Open(writeTemp(t, name+".gguf", m.bytes()))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if cfg := c.Config(); cfg.Architecture != want || cfg.HeadDim != 16 || cfg.AttentionBias {
			t.Errorf("%s: %+v", name, cfg)
		}
		for _, n := range []string{"q_proj", "k_proj", "q_norm", "k_norm"} {
			if x, ok := c.Tensor("model.layers.0.self_attn." + n + ".weight"); !ok || x.RopeHead != 0 {
				t.Errorf("%s: %s is %+v, %v", name, n, x, ok)
			}
		}
	}
}

// badGGUF lists invalid files, with the field that the error names.
var badGGUF = map[string]struct {
	field string
	spoil func(m *toy)
}{
	"magic":                {"", func(m *toy) { m.magic = 0x46554746 }},
	"version 1":            {"version", func(m *toy) { m.version = 1 }},
	"big-endian version 2": {"version", func(m *toy) { m.version = 2 << 24 }},
	"big-endian":           {"version", func(m *toy) { m.version = 3 << 24 }},
	"no tensors":           {"tensor_count", func(m *toy) { m.tensors = nil }},
	"2^60 tensors":         {"tensor_count", func(m *toy) { m.count = 1 << 60 }},
	"2^60 keys":            {"metadata_kv_count", func(m *toy) { m.keys = 1 << 60 }},
	"2^64-1 keys":          {"metadata_kv_count", func(m *toy) { m.keys = math.MaxUint64 - uint64(len(m.pairs)) }},
	"more keys than there": {"metadata key 17", func(m *toy) { m.keys = 60000; m.data, m.tensors = 0, m.tensors[:1] }},
	"key twice":            {"general.architecture", func(m *toy) { m.pairs = append(m.pairs, m.pairs[0]) }},
	"long key":             {"metadata key 16", func(m *toy) { m.set(strings.Repeat("k", 1<<16), uint32(1)) }},
	"2^63 string":          {"x", func(m *toy) { m.set("x", rawValue(le(nil, uint32(kindString), uint64(1)<<63))) }},
	"2^64-1 string":        {"x", func(m *toy) { m.set("x", rawValue(le(nil, uint32(kindString), uint64(math.MaxUint64)))) }},
	"2^62 elements":        {"x", func(m *toy) { m.set("x", rawValue(le(nil, uint32(kindArray), uint32(kindU64), uint64(1)<<62))) }},
	"2^61 strings":         {"x", func(m *toy) { m.set("x", rawValue(le(nil, uint32(kindArray), uint32(kindString), uint64(1)<<61))) }},
	"string in array": {"x", func(m *toy) {
		m.set("x", rawValue(le(nil, uint32(kindArray), uint32(kindString), uint64(2), "a", uint64(1)<<40)))
	}},
	"nested arrays": {"x", func(m *toy) {
		m.set("x", rawValue(le(nil, uint32(kindArray), uint32(kindArray), uint64(1), uint32(kindU8), uint64(0))))
	}},
	"array of nothing": {"x", func(m *toy) { m.set("x", rawValue(le(nil, uint32(kindArray), uint32(99), uint64(1)))) }},
	"unknown value":    {"x", func(m *toy) { m.set("x", rawValue(le(nil, uint32(13)))) }},
	"split":            {"split.no", func(m *toy) { m.set("split.count", uint32(3)) }},
	"split by name":    {"split.no", func(m *toy) { m.set("split.count", uint32(3)).set("split.no", uint32(0)) }},
	"2^63 splits":      {"split.count", func(m *toy) { m.set("split.count", uint64(1)<<63) }},

	"alignment 0":       {"general.alignment", func(m *toy) { m.set("general.alignment", uint32(0)) }},
	"alignment 48":      {"general.alignment", func(m *toy) { m.set("general.alignment", uint32(48)) }},
	"alignment 2^31":    {"general.alignment", func(m *toy) { m.set("general.alignment", uint32(1<<31)) }},
	"alignment 2^63":    {"general.alignment", func(m *toy) { m.set("general.alignment", uint64(1)<<63) }},
	"alignment of text": {"general.alignment", func(m *toy) { m.set("general.alignment", "32") }},

	"no dimensions":     {"output_norm.weight", func(m *toy) { m.tensors[1].dims = nil }},
	"five dimensions":   {"output_norm.weight", func(m *toy) { m.tensors[1].dims = []uint64{8, 1, 1, 1, 1} }},
	"2^32 dimensions":   {"output_norm.weight", func(m *toy) { m.tensors[1].dims = make([]uint64, 1<<16) }},
	"2^60 elements":     {"output_norm.weight", func(m *toy) { m.tensors[1].dims = []uint64{1 << 60} }},
	"product overflows": {"output_norm.weight", func(m *toy) { m.tensors[1].dims = []uint64{1 << 32, 1 << 32, 1 << 32} }},
	"2^64-1 elements":   {"output_norm.weight", func(m *toy) { m.tensors[1].dims = []uint64{math.MaxUint64} }},
	"no elements":       {"output_norm.weight", func(m *toy) { m.tensors[1].dims = []uint64{0} }},
	"partial block":     {"output_norm.weight", func(m *toy) { m.tensors[1].kind = 8 }},
	"Q5_K":              {"output_norm.weight", func(m *toy) { m.tensors[1].kind = 13 }},
	"type 1000":         {"output_norm.weight", func(m *toy) { m.tensors[1].kind = 1000 }},
	"removed type":      {"output_norm.weight", func(m *toy) { m.tensors[1].kind = 4 }},
	"tensor twice":      {"token_embd.weight", func(m *toy) { m.tensors[1].name = m.tensors[0].name }},
	"long name":         {"tensor 1", func(m *toy) { m.tensors[1].name = strings.Repeat("n", 1<<16) }},
	"unaligned offset":  {"output_norm.weight", func(m *toy) { m.tensors[1].offset++ }},
	"2^63 offset":       {"output_norm.weight", func(m *toy) { m.tensors[1].offset = 1 << 63 }},
	"offset outside":    {"output_norm.weight", func(m *toy) { m.tensors[1].offset += 1 << 12 }},
	"hole":              {"output_norm.weight", func(m *toy) { m.tensors[1].offset += 64; m.data += 64 }},
	"overlap":           {"output_norm.weight", func(m *toy) { m.tensors[1].offset -= 32 }},
	"same place":        {"output_norm.weight", func(m *toy) { m.tensors[1].offset = 0 }},
	"data cut":          {"output_norm.weight", func(m *toy) { m.data -= 1 }},
	"no data":           {"output_norm.weight", func(m *toy) { m.data = 0 }},
	"unknown tensor":    {"blk.0.ffn_sideways.weight", func(m *toy) { m.tensors[1].name = "blk.0.ffn_sideways.weight" }},
	"layer outside":     {"blk.1.attn_norm.weight", func(m *toy) { m.tensors[1].name = "blk.1.attn_norm.weight" }},
	"layer +0":          {"blk.+0.attn_norm.weight", func(m *toy) { m.tensors[1].name = "blk.+0.attn_norm.weight" }},
	"no embedding":      {"token_embd.weight", func(m *toy) { m.tensors[0].name = "output.weight" }},
	"rope factors":      {"rope_freqs.weight", func(m *toy) { m.tensors[1] = entry{"rope_freqs.weight", []uint64{2}, 0, m.tensors[1].offset} }},
	"rope factor shape": {"rope_freqs.weight", func(m *toy) { m.tensors[1].name = "rope_freqs.weight" }},

	"architecture":      {"general.architecture", func(m *toy) { m.set("general.architecture", "mamba") }},
	"architecture gone": {"general.architecture", func(m *toy) { m.set("general.architecture", nil) }},
	"architecture 7":    {"general.architecture", func(m *toy) { m.set("general.architecture", uint32(7)) }},
	"size gone":         {"llama.embedding_length", func(m *toy) { m.set("llama.embedding_length", nil) }},
	"size 0":            {"llama.embedding_length", func(m *toy) { m.set("llama.embedding_length", uint32(0)) }},
	"size 2^63":         {"llama.embedding_length", func(m *toy) { m.set("llama.embedding_length", uint64(1)<<63) }},
	"size of text":      {"llama.embedding_length", func(m *toy) { m.set("llama.embedding_length", "8") }},
	"size by layer":     {"llama.feed_forward_length", func(m *toy) { m.set("llama.feed_forward_length", []int32{16}) }},
	"heads":             {"llama.attention.head_count_kv", func(m *toy) { m.set("llama.attention.head_count_kv", uint32(3)) }},
	"head size": {"llama.embedding_length", func(m *toy) {
		m.set("llama.attention.head_count", uint32(3)).set("llama.attention.head_count_kv", uint32(3))
	}},
	"layers":       {"llama.block_count", func(m *toy) { m.set("llama.block_count", uint32(4e9)) }},
	"eps NaN":      {"llama.attention.layer_norm_rms_epsilon", func(m *toy) { m.set("llama.attention.layer_norm_rms_epsilon", float32(math.NaN())) }},
	"eps -1":       {"llama.attention.layer_norm_rms_epsilon", func(m *toy) { m.set("llama.attention.layer_norm_rms_epsilon", float32(-1)) }},
	"theta Inf":    {"llama.rope.freq_base", func(m *toy) { m.set("llama.rope.freq_base", float32(math.Inf(1))) }},
	"theta 0":      {"llama.rope.freq_base", func(m *toy) { m.set("llama.rope.freq_base", float32(0)) }},
	"experts":      {"llama.expert_used_count", func(m *toy) { m.set("llama.expert_count", uint32(8)) }},
	"rope yarn":    {"llama.rope.scaling.factor", func(m *toy) { m.set("llama.rope.scaling.type", "yarn") }},
	"partial rope": {"llama.rope.dimension_count", func(m *toy) { m.set("llama.rope.dimension_count", uint32(2)) }},

	"unigram":        {"tokenizer.ggml.model", func(m *toy) { m.set("tokenizer.ggml.model", "t5") }},
	"wordpiece":      {"tokenizer.ggml.model", func(m *toy) { m.set("tokenizer.ggml.model", "bert") }},
	"no tokenizer":   {"tokenizer.ggml.model", func(m *toy) { m.set("tokenizer.ggml.model", nil) }},
	"another BPE":    {"tokenizer.ggml.pre", func(m *toy) { m.set("tokenizer.ggml.pre", "afmoe") }},
	"BPE of no kind": {"tokenizer.ggml.pre", func(m *toy) { m.set("tokenizer.ggml.pre", nil) }},
	"no tokens":      {"tokenizer.ggml.tokens", func(m *toy) { m.set("tokenizer.ggml.tokens", nil) }},
	"tokens of ints": {"tokenizer.ggml.tokens", func(m *toy) { m.set("tokenizer.ggml.tokens", []int32{1}) }},
	"too many tokens": {"tokenizer.ggml.tokens", func(m *toy) {
		m.tensors[0].dims[1] = 8
		m.tensors[1].offset = 8 * 8 * 4
		m.set("tokenizer.ggml.bos_token_id", nil)
	}},
	"bos outside": {"tokenizer.ggml.bos_token_id", func(m *toy) { m.set("tokenizer.ggml.bos_token_id", uint32(265)) }},
	"eos -1":      {"tokenizer.ggml.eos_token_id", func(m *toy) { m.set("tokenizer.ggml.eos_token_id", uint32(math.MaxUint32)) }},
	"add_bos 2":   {"tokenizer.ggml.add_bos_token", func(m *toy) { m.set("tokenizer.ggml.add_bos_token", rawValue(le(nil, uint32(kindBool), uint8(2)))) }},
	"template":    {"tokenizer.chat_template", func(m *toy) { m.set("tokenizer.chat_template", "\xff") }},
}

func TestBadGGUF(t *testing.T) {
	for name, c := range badGGUF {
		t.Run(name, func(t *testing.T) {
			m := newToy("smollm")
			c.spoil(m)
			path := writeTemp(t, "bad.gguf", m.bytes())
			checkAllocation(t, 4<<20, func() {
				_, err := Open(path)
				wantError(t, err, path, c.field)
			})
		})
	}
}

// TestCutGGUF checks that a file truncated at any byte is refused.
func TestCutGGUF(t *testing.T) {
	whole := newToy("smollm").bytes()
	for n := range len(whole) {
		if n > 600 && n%97 != 0 && n < len(whole)-1 {
			continue
		}
		_, err := openBytes("cut.gguf", whole[:n])
		wantErrorType(t, err)
	}
}

// openBytes opens a GGUF file in memory.
func openBytes(name string, b []byte) (*Checkpoint, error) {
	g, err := parseGGUF(name, b)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{path: name, byName: map[string]int{}, files: map[string]*file{}}
	return c, c.fromGGUF(g)
}

// TestBadGGUFTokenizer covers errors that only building tokenizer.json finds.
func TestBadGGUFTokenizer(t *testing.T) {
	tokens, types := toyTokens()
	with := func(i int, s string) []string {
		out := append([]string{}, tokens...)
		out[i] = s
		return out
	}
	for name, c := range map[string]struct {
		field string
		key   string
		value any
	}{
		"same token":    {"tokenizer.ggml.tokens", "tokenizer.ggml.tokens", with(257, "he")},
		"not UTF-8":     {"tokenizer.ggml.tokens", "tokenizer.ggml.tokens", with(257, "\xff")},
		"no merges":     {"tokenizer.ggml.merges", "tokenizer.ggml.merges", nil},
		"merge of one":  {"tokenizer.ggml.merges", "tokenizer.ggml.merges", []string{"hello"}},
		"merge of none": {"tokenizer.ggml.merges", "tokenizer.ggml.merges", []string{"h zz"}},
		"merge to none": {"tokenizer.ggml.merges", "tokenizer.ggml.merges", []string{"h h"}},
		"merge of ints": {"tokenizer.ggml.merges", "tokenizer.ggml.merges", []int32{1}},
		"types short":   {"tokenizer.ggml.token_type", "tokenizer.ggml.token_type", types[1:]},
		"type 7":        {"tokenizer.ggml.token_type", "tokenizer.ggml.token_type", append([]int32{7}, types[1:]...)},
		"type 6":        {"tokenizer.ggml.token_type", "tokenizer.ggml.token_type", append([]int32{6}, types[1:]...)},
		"type text":     {"tokenizer.ggml.token_type", "tokenizer.ggml.token_type", tokens},
		"no bos":        {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := newToy("smollm").set(c.key, c.value).set("tokenizer.ggml.add_bos_token", true)
			x, err := openBytes("bad.gguf", m.bytes())
			if err == nil {
				_, err = x.TokenizerJSON()
			}
			wantError(t, err, "bad.gguf", c.field)
		})
	}
}

func FuzzGGUF(f *testing.F) {
	f.Add(newToy("smollm").bytes()[:600])
	for _, kind := range []string{"llama-bpe", "qwen2"} {
		m := newToy(kind)
		for _, key := range []string{"tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"} {
			m.set(key, nil)
		}
		m.set("tokenizer.ggml.tokens", []string{"a", "b", "ab", "<|eot_id|>"}).set("tokenizer.ggml.merges", []string{"a b"})
		m.set("tokenizer.ggml.token_type", []int32{1, 1, 1, 3}).set("tokenizer.ggml.bos_token_id", uint32(3)).set("tokenizer.ggml.eos_token_id", uint32(3))
		m.tensors = []entry{{"token_embd.weight", []uint64{8, 4}, 0, 0}, {"rope_freqs.weight", []uint64{2}, 0, 128}}
		m.data = 160
		f.Add(m.bytes())
	}
	for kind := range uint32(64) { // a block of each format of 256
		if elems, size := ggufTypes[kind].Block(); elems == 256 {
			m := newToy("smollm")
			m.tensors, m.data = []entry{{"blk.0.ffn_up.weight", []uint64{256, 1}, kind, 0}}, size
			f.Add(m.bytes())
		}
	}
	for arch, key := range map[string]string{"gemma4": "attention.sliding_window", "phi3": "rope.scaling.original_context_length", "qwen2moe": "expert_count", "glm4moe": "nextn_predict_layers"} {
		m := familyToy(arch, map[string][]uint64{"attn_qkv.weight": {16, 32}, "ffn_gate_inp.weight": {16, 4}})
		m.set(arch+"."+key, uint32(1)).set("tokenizer.ggml.merges", nil).set("tokenizer.ggml.model", "llama").set("tokenizer.ggml.scores", make([]float32, toyVocab))
		f.Add(m.bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := openBytes("x.gguf", b)
		if err != nil {
			wantErrorType(t, err)
			return
		}
		for _, x := range c.Tensors() {
			if x.Offset < 0 || x.Bytes < 1 || x.Offset+x.Bytes > int64(len(b)) || x.Rows()*x.RowBytes() != x.Bytes {
				t.Errorf("accepted %+v", x)
				continue
			}
			if x.Format.Quantized() && x.Elements() < 1<<16 {
				ref.Dequantize(x.Format, b[x.Offset:], make([]float32, x.Elements()))
			}
		}
		if j, err := c.TokenizerJSON(); err != nil {
			wantErrorType(t, err)
		} else if !json.Valid(j) {
			t.Errorf("not JSON: %q", j)
		}
		if freq, err := c.Config().RopeInvFreq(); err == nil {
			for _, x := range freq {
				if !finite(float64(x)) {
					t.Errorf("frequency %v", x)
				}
			}
		}
	})
}
