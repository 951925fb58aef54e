package checkpoint

import "strings"

// bpeKind describes a kind of byte-level BPE, chiefly how it splits text before merging.
type bpeKind struct {
	normalizer   string // JSON
	pretokenizer string // JSON
	postBytes    string // JSON of the post-processor's ByteLevel
	decoder      string // JSON
	ignoreMerges bool   // a word that is a token is not split
	addBOS       bool   // default if the file does not set it
	alsoEnds     []string
}

const (
	byteLevelSplit = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}`
	byteLevelRegex = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}`
	byteLevelPost  = `{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true}`
	byteLevelAll   = `{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}`
	byteLevelQwen  = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}`

	splitHead = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}`
	// o200k: a word may begin with capitals, and includes its contraction.
	splitO200k = `[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`
	splitTail = `| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`
)

func splitThen(digits, byteLevel string) string {
	return `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"` + splitHead + digits + splitTail +
		`"},"behavior":"Isolated","invert":false},` + byteLevel + `]}`
}

// bpeKinds are the values of tokenizer.ggml.pre that vapp reads.
func bpeKinds() map[string]bpeKind {
	llama3 := bpeKind{
		normalizer: "null", pretokenizer: splitThen("{1,3}", byteLevelSplit), postBytes: byteLevelPost,
		decoder: byteLevelAll, ignoreMerges: true, addBOS: true,
		alsoEnds: []string{"<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"},
	}
	return map[string]bpeKind{
		"llama-bpe": llama3,
		"llama3":    llama3,
		"qwen2": {
			normalizer: `{"type":"NFC"}`, pretokenizer: splitThen("", byteLevelQwen), postBytes: byteLevelQwen, decoder: byteLevelQwen,
			alsoEnds: []string{"<|im_end|>", "<|endoftext|>"},
		},
		"gpt-4o": {normalizer: "null", pretokenizer: `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"` + splitO200k +
			`"},"behavior":"Isolated","invert":false},` + byteLevelSplit + `]}`, decoder: byteLevelAll,
			alsoEnds: []string{"<|return|>", "<|call|>"}},
		"smollm": {normalizer: "null", pretokenizer: `{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},` +
			byteLevelRegex + `]}`, decoder: byteLevelAll},
	}
}

// bpe returns the kind of the file's tokenizer; the error lists the supported kinds.
func (g *gguf) bpe() (bpeKind, error) {
	f := &ggufFields{g: g}
	model, pre := f.text("tokenizer.ggml.model", ""), f.text("tokenizer.ggml.pre", "")
	if f.err == nil && model != "gpt2" {
		f.fail("tokenizer.ggml.model", "%s is not read (gpt2, which is byte-level BPE, is)", clip(model))
	}
	kind, ok := bpeKinds()[pre]
	if f.err == nil && !ok {
		f.fail("tokenizer.ggml.pre", "%s is not read (smollm, llama-bpe, llama3, qwen2 and gpt-4o are)", clip(pre))
	}
	return kind, f.err
}

// ggufText reads the text side of the metadata: tokenizer, special tokens, templates.
func ggufText(g *gguf, cfg Config) (text, error) {
	kind, err := g.bpe()
	if err != nil {
		return text{}, err
	}
	tokens := g.values["tokenizer.ggml.tokens"]
	if tokens.kind != kindArray || tokens.elem != kindString || tokens.n == 0 {
		return text{}, fault(g.path, "tokenizer.ggml.tokens", "is missing or no array of strings")
	}
	if tokens.n > cfg.VocabSize {
		return text{}, fault(g.path, "tokenizer.ggml.tokens", "has %d tokens, token_embd.weight has %d rows", tokens.n, cfg.VocabSize)
	}
	f := &ggufFields{g: g}
	token := func(role string) Token {
		id := f.id("tokenizer.ggml."+role+"_token_id", tokens.n)
		if id < 0 {
			return Token{ID: -1}
		}
		return Token{ID: id, Text: tokens.at(id)}
	}
	t := text{templates: map[string]string{}}
	t.special = SpecialTokens{
		BOS: token("bos"), EOS: token("eos"), PAD: token("padding"), UNK: token("unknown"),
		AddBOS: f.flag("tokenizer.ggml.add_bos_token", kind.addBOS),
	}
	ends := []int{t.special.EOS.ID, token("eot").ID, token("eom").ID}
	for _, name := range kind.alsoEnds {
		ends = append(ends, tokens.find(name))
	}
	for _, id := range ends {
		if id >= 0 {
			t.eos = union(t.eos, []int{id})
		}
	}
	for _, key := range g.keys {
		if name, ok := strings.CutPrefix(key, "tokenizer.chat_template"); ok {
			if name = strings.TrimPrefix(name, "."); name == "" {
				name = "default"
			}
			if g.values[key].kind == kindString {
				t.templates[name] = f.text(key, "")
			}
		}
	}
	t.tokenizer = func() ([]byte, error) { return g.tokenizerJSON(kind, t.special) }
	return t, f.err
}
