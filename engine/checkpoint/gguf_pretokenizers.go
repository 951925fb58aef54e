package checkpoint

import "strings"

// vocabulary describes a kind of tokenizer of GGUF files: how it normalizes and splits text before
// merging, and how it decodes.
type vocabulary struct {
	normalizer   string // JSON
	pretokenizer string // JSON
	postBytes    string // JSON of the post-processor's ByteLevel; "": none
	decoder      string // JSON
	ignoreMerges bool   // a word that is a token is not split
	addBOS       bool   // default if the file does not set it
	alwaysBOS    bool   // whatever the file sets
	// spaces is true if blanks become ▁ and tokens are UTF-8, with tokens for the bytes of other
	// characters; false: tokens are byte-level.
	spaces bool
	// scored is true if the order of merges follows from the scores of tokens, as in SentencePiece.
	scored bool
}

const (
	byteLevelSplit = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}`
	byteLevelRegex = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}`
	byteLevelPost  = `{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true}`
	byteLevelAll   = `{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}`
	byteLevelQwen  = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}`
	nfc            = `{"type":"NFC"}`
)

// Parts of the expressions that split text into words.
const (
	contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	lines        = `|\s*[\r\n]+`
	blanks       = `|\s+(?!\S)|\s+`
	splitHead    = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}`
	splitTail    = `| ?[^\s\p{L}\p{N}]+[\r\n]*` + lines + blanks
	splitGPT4    = splitHead + `{1,3}` + splitTail // cl100k, Llama 3
	splitQwen2   = splitHead + splitTail
	splitGPT2    = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+` + blanks

	// o200k: a word may begin with capitals.
	wordBig   = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	wordSmall = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
	otherO200 = `| ?[^\s\p{L}\p{N}]+[\r\n/]*` + lines + blanks
	splitO200 = wordBig + contractions + `?|` + wordSmall + contractions + `?|\p{N}{1,3}` + otherO200

	punctuation    = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
	cjk            = `[一-龥぀-ゟ゠-ヿ]+`
	splitDeepSeek  = punctuation + `[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*` + lines + blanks
	cjkDeepSeek    = `[一-龥ࠀ-一가-퟿]+`
	letterDeepSeek = `[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼ` +
		`ℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+`

	// Kimi: o200k whose words have no Chinese characters, which are words of their own.
	upperKimi = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`
	lowerKimi = `[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`
	splitKimi = `[\p{Han}]+|[^\r\n\p{L}\p{N}]?` + upperKimi + `*` + lowerKimi + `+` + contractions + `?|[^\r\n\p{L}\p{N}]?` + upperKimi + `+` + lowerKimi + `*` + contractions +
		`?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` + lines + blanks
	splitBloom = ` ?[^(\s|.,!?…。，、।۔،)]+`
	blanksJais = `|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`

	scriptsYoutu = `[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+`
)

// splitThen returns a pre-tokenizer that splits by each expression in turn and then maps bytes to
// letters. What an expression does not match stays a piece of its own.
func splitThen(byteLevel string, expressions ...string) string {
	b := []byte(`{"type":"Sequence","pretokenizers":[`)
	for _, e := range expressions {
		b = append(appendString(append(b, `{"type":"Split","pattern":{"Regex":`...), e), `},"behavior":"Isolated","invert":false},`...)
	}
	return string(append(append(b, byteLevel...), `]}`...))
}

// splitting returns a byte-level vocabulary that splits by expressions.
func splitting(expressions ...string) vocabulary {
	return vocabulary{normalizer: "null", pretokenizer: splitThen(byteLevelSplit, expressions...), decoder: byteLevelAll}
}

func (v vocabulary) composed() vocabulary      { v.normalizer = nfc; return v }
func (v vocabulary) ignoresMerges() vocabulary { v.ignoreMerges = true; return v }
func (v vocabulary) beginning() vocabulary     { v.addBOS = true; return v }

// bpeKinds returns the kind of each value of tokenizer.ggml.pre that is read: the names that
// llama.cpp's converter writes, with the expressions of the models' own tokenizer.json where
// llama.cpp approximates them.
func bpeKinds() map[string]vocabulary {
	gpt2 := vocabulary{normalizer: "null", pretokenizer: byteLevelRegex, decoder: byteLevelAll}
	digits := vocabulary{normalizer: "null", decoder: byteLevelAll,
		pretokenizer: `{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},` + byteLevelRegex + `]}`}
	gpt4 := splitting(splitGPT4)
	llama3 := gpt4.ignoresMerges().beginning()
	llama3.postBytes = byteLevelPost
	qwen := func(expression string) vocabulary {
		return vocabulary{normalizer: nfc, pretokenizer: splitThen(byteLevelQwen, expression), postBytes: byteLevelQwen, decoder: byteLevelQwen}
	}
	deepSeek3 := splitting(`\p{N}{1,3}`, cjk, splitDeepSeek)
	o200 := splitting(splitO200)
	bloom := splitting(splitBloom)
	bailing := splitting(`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]` + blanks)

	of := map[string]vocabulary{
		"deepseek-coder": splitting(`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, cjkDeepSeek, `\p{N}`),
		"deepseek-llm":   splitting(`[\r\n]`, `\s?`+letterDeepSeek, `\s?[!-/:-~！-／：-～‘-‟　-。]+`, `\s+$`, cjkDeepSeek, `\p{N}+`),
		"kimi-k2":        splitting(splitKimi),
		"spark2_5":       splitting(`\p{N}{1,3}`, cjk, punctuation+`[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]`+blanks, `\p{N}`),
		"falcon":         splitting("[\\p{P}\\$\\+<=>\\^~\\|`]+", splitGPT2, `[0-9][0-9][0-9]`),
		"viking":         splitting(splitBloom, `\p{N}`),
		"jais-2":         splitting(splitHead + `{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` + lines + blanksJais),
		"qwen35":         qwen(contractions + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*` + lines + blanks),
		"tekken":         splitting(wordBig + `|` + wordSmall + `|\p{N}` + otherO200).ignoresMerges().beginning(),
		"youtu":          splitting(scriptsYoutu, wordBig+contractions+`?|`+wordSmall+contractions+`?|\p{N}`+otherO200).ignoresMerges(),
		"superbpe":       splitting(`\p{N}+`, `(?=(\d{3})+(?!\d))`),
		"seed-coder":     splitting(splitHead + `{1}| ?[^\s\p{L}\p{N}\r\n]+` + lines + blanks),
		"ufakzeka":       splitting(`[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` + splitTail),
		"laguna":         splitting(`[^\n]+|[\n]+`, splitQwen2),
		"exaone-moe":     splitting(contractions + `|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]` + blanks),
		"minicpm5":       splitting(`\p{N}{1,3}`, splitHead+`+`+splitTail).ignoresMerges(),
		"command-r":      digits.composed(),
		"olmo":           gpt2.composed(),
		"gemma4":         gemmaVocabulary(),
	}
	for kind, names := range map[*vocabulary]string{
		&gpt2:      "gpt-2 phi-2 mpt gigachat a.x-4.0 mellum jais trillion granite-docling exaone4",
		&digits:    "smollm starcoder refact codeshell exaone minerva-7b mellum2",
		&llama3:    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
		&gpt4:      "dbrx smaug-bpe chatglm-bpe",
		&deepSeek3: "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
		&o200:      "gpt-4o llama4 kanana2 talkie minimax-m2",
		&bloom:     "bloom gpt3-finnish poro-chat",
		&bailing:   "bailingmoe bailingmoe2 llada-moe",
	} {
		for _, name := range strings.Fields(names) {
			of[name] = *kind
		}
	}
	for _, name := range strings.Fields("qwen2 deepseek-r1-qwen kormo f2llmv2 megrez") {
		of[name] = qwen(splitQwen2)
	}
	for _, name := range strings.Fields("stablelm2 hunyuan solar-open grok-2") {
		of[name] = splitting(splitQwen2)
	}
	for _, name := range strings.Fields("tiny_aya cohere2moe") {
		of[name] = splitting(`\d{1,3}(?=(?:\d{3})*\b)`, splitO200)
	}
	for _, name := range strings.Fields("glm4 glm5") {
		of[name] = gpt4.ignoresMerges()
	}
	return of
}

// spaced returns the vocabulary of tokenizers that write ▁ for a blank. prefix puts one before every
// piece of text between special tokens.
func spaced(prefix bool) vocabulary {
	const (
		replace = `{"type":"Replace","pattern":{"String":" "},"content":"▁"}`
		decode  = `{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"}`
	)
	v := vocabulary{normalizer: replace, pretokenizer: "null", decoder: `{"type":"Sequence","decoders":[` + decode + `]}`, spaces: true}
	if prefix {
		v.normalizer = `{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},` + replace + `]}`
		v.decoder = `{"type":"Sequence","decoders":[` + decode + `,{"type":"Strip","content":" ","start":1,"stop":0}]}`
	}
	return v
}

// vocabulary returns the kind of the file's tokenizer. An error lists the kinds that are read.
func (g *gguf) vocabulary() (vocabulary, error) {
	f := &ggufFields{g: g}
	switch model := f.text("tokenizer.ggml.model", ""); {
	case f.err != nil:
	case model == "llama":
		v := spaced(f.flag("tokenizer.ggml.add_space_prefix", true))
		v.scored, v.addBOS = true, true
		return v, f.err
	case model == "gemma4":
		return gemmaVocabulary(), nil
	case model == "gpt2":
		pre := f.text("tokenizer.ggml.pre", "")
		kinds := bpeKinds()
		kind, ok := kinds[pre]
		if _, named := g.values["tokenizer.ggml.pre"]; f.err == nil && !named {
			f.fail("tokenizer.ggml.pre", "is missing, and without it nothing says how text is split; convert the model again, files have it since April 2024")
		}
		if f.err == nil && !ok {
			f.fail("tokenizer.ggml.pre", "%s is not read (%d names of llama.cpp's table are, among them gpt-2, llama-bpe, qwen2, qwen35, gpt-4o, tekken, deepseek-v3, kimi-k2, glm4, falcon, starcoder, smollm, command-r, gemma4)", clip(pre), len(kinds))
		}
		return kind, f.err
	default:
		f.fail("tokenizer.ggml.model", "%s is not read (gpt2, which is byte-level BPE, llama, which is SentencePiece, and gemma4 are)", clip(model))
	}
	return vocabulary{}, f.err
}

// gemmaVocabulary returns the vocabulary of Gemma 4: merges over UTF-8. Its files may lack the flag
// for BOS, without which the model does not work.
func gemmaVocabulary() vocabulary {
	v := spaced(false)
	// No token joins a line end with another character, so splitting there changes nothing but the time.
	v.pretokenizer = `{"type":"Split","pattern":{"Regex":"[^\\n]+|\\n+"},"behavior":"Isolated","invert":false}`
	v.addBOS, v.alwaysBOS = true, true
	return v
}
