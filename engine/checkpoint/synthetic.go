package checkpoint

import (
	"fmt"
	"strconv"
)

// syntheticTemplate renders a conversation for models without a template.
const syntheticTemplate = `{{ bos_token }}{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}`

// syntheticSpecials returns the text of the special ids of a config.
func syntheticSpecials(cfg Config) map[int]string {
	names := map[int]string{}
	if cfg.BosTokenID >= 0 {
		names[cfg.BosTokenID] = "<|bos|>"
	}
	for i, id := range cfg.EosTokenIDs {
		names[id] = "<|eos|>"
		if i > 0 {
			names[id] = "<|eos_" + strconv.Itoa(i) + "|>"
		}
	}
	return names
}

// syntheticText returns the text side of a model that has only a config.
func syntheticText(cfg Config) text {
	none := Token{ID: -1}
	t := text{
		special:   SpecialTokens{BOS: none, EOS: none, PAD: none, UNK: none},
		templates: map[string]string{"default": syntheticTemplate},
		eos:       union(cfg.EosTokenIDs),
		tokenizer: func() ([]byte, error) { return SyntheticTokenizer(cfg) },
	}
	names := syntheticSpecials(cfg)
	if id := cfg.BosTokenID; id >= 0 {
		t.special.BOS = Token{id, names[id]}
	}
	if len(cfg.EosTokenIDs) > 0 {
		id := cfg.EosTokenIDs[0]
		t.special.EOS = Token{id, names[id]}
	}
	return t
}

// SyntheticTokenizer returns a tokenizer.json of exactly VocabSize tokens for a model that has
// none: byte-level BPE without merges, so that any text encodes to its bytes. The ids of BOS and
// EOS are special tokens <|bos|>, <|eos|>, <|eos_1|> …; the lowest other 256 ids are the bytes in
// order; every other id decodes to a unique word, " w" and its number.
func SyntheticTokenizer(cfg Config) ([]byte, error) {
	special := syntheticSpecials(cfg)
	if cfg.VocabSize < 256+len(special) || cfg.VocabSize > maxVocab {
		return nil, fault("config", "vocab_size", "is %d; a synthetic tokenizer needs %d to %d", cfg.VocabSize, 256+len(special), maxVocab)
	}
	for id := range special {
		if id >= cfg.VocabSize {
			return nil, fault("config", "eos_token_id", "%d is not below vocab_size %d", id, cfg.VocabSize)
		}
	}
	b := make([]byte, 0, 20*cfg.VocabSize+2048)
	b = append(b, `{"version":"1.0","truncation":null,"padding":null,"added_tokens":[`...)
	first := true
	for id := range cfg.VocabSize {
		if name, ok := special[id]; ok {
			b = comma(b, &first)
			b = fmt.Appendf(b, `{"id":%d,"content":%s,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}`, id, quoted(name))
		}
	}
	b = append(b, `],"normalizer":null,"pre_tokenizer":`+byteLevelRegex+`,"post_processor":null,"decoder":`+byteLevelAll+
		`,"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,`+
		`"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{`...)
	letters, next := byteLetters(), 0
	for id := range cfg.VocabSize {
		if id > 0 {
			b = append(b, ',')
		}
		name, ok := special[id]
		switch {
		case ok:
			b = appendString(b, name)
		case next < 256:
			b = appendString(b, string(letters[next]))
			next++
		default:
			b = append(b, "\"\u0120w"...) // U+0120 represents the space
			b = strconv.AppendInt(b, int64(id), 10)
			b = append(b, '"')
		}
		b = append(b, ':')
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return append(b, `},"merges":[]}}`...), nil
}

// byteLetters returns the character that represents each byte in byte-level BPE, as in GPT-2:
// printable Latin-1 unchanged, the others from U+0100 on.
func byteLetters() (letters [256]rune) {
	next := rune(0x100)
	for b := range letters {
		c := rune(b)
		if c >= '!' && c <= '~' || c >= 0xa1 && c <= 0xac || c >= 0xae {
			letters[b] = c
			continue
		}
		letters[b] = next
		next++
	}
	return letters
}
